# SPDX-License-Identifier: Apache-2.0
#
# Usage: awk -f doxygen-comments.awk HEADER
#
# Doxygen's input filter (Doxyfile.in): prints HEADER with the comments that document something in
# Doxygen's form. Ours are plain `//`, and so is what a comment says about the text around it:
#
#   the block at the head of the file    `///`; its licence becomes @file
#   a block before a declaration         `///`
#   behind a declaration                 `///<`
#   everything else                      stays: before an empty line, before and behind a closing
#                                        brace, and a few small words over several members ("ours")
#
# In a block, lines that are indented by two more are a list where they begin with `*`, else shown
# as they are.

function flush_block(documents,    i) {
  for (i = 1; i <= size; ++i) {
    if (documents) document(indents[i], texts[i])
    else print indents[i] "//" texts[i]
  }
  if (shown) end_shown()
  size = 0
  in_list = 0
}

# One line of a block: `text` is what follows the slashes.
function document(indent, text) {
  if (head && text ~ /^ SPDX-License-Identifier: /) {
    print "/// @file"
    return
  }
  if (text ~ /^   /) {
    sub(/^  /, "", text)
    if (text ~ /^ \* /) in_list = 1
    if (!in_list) {
      if (!shown) print indent "/// ~~~"
      shown_indent = indent
      shown = 1
      print indent "///" text
      return
    }
  } else {
    in_list = 0
  }
  if (shown) end_shown()
  print indent "///" escaped(text)
}

function end_shown() {
  print shown_indent "/// ~~~"
  shown = 0
}

# What would be a command, a link, a tag or a dash to Doxygen is meant as it stands. Odd parts are
# outside of `code`.
function escaped(text,    parts, count, i, result) {
  count = split(text, parts, "`")
  for (i = 1; i <= count; ++i) {
    if (i % 2 == 1) {
      gsub(/[\\@#%<]/, "\\\\&", parts[i])
      gsub(/--/, "\\--", parts[i])
    }
    result = result (i > 1 ? "`" : "") parts[i]
  }
  return result
}

BEGIN { head = 1 }

/^ *\/\/( |$)/ {
  match($0, /^ */)
  ++size
  indents[size] = substr($0, 1, RLENGTH)
  texts[size] = substr($0, RLENGTH + 3)
  next
}

{
  over_several = size == 1 && texts[1] ~ /^ [a-z]/ && texts[1] !~ /[.:]$/
  flush_block(head || !($0 ~ /^ *(}|$|#)/ || over_several))
  head = 0
}

/^ *[^ }#\/].*[^ ]  +\/\/ / && !/\/\/ NOLINT/ {
  at = match($0, /  +\/\/ /)
  print substr($0, 1, at - 1) "  ///< " escaped(substr($0, at + RLENGTH))
  next
}

{ print }

END { flush_block(0) }
