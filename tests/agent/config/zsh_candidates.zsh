#!/bin/zsh -f
# SPDX-License-Identifier: Apache-2.0
#
# Usage: zsh -f tests/agent/config/zsh_candidates.zsh COMPLETION-FILE LINE
#
# What zsh offers when the user has typed LINE and presses Tab, one candidate a line: a real line
# editor, on a pseudo-terminal, with COMPLETION-FILE sourced. Ends with 1 where nothing came.
zmodload zsh/zpty zsh/zselect
export COMPLETION_FILE=$1 OFFERED=$(mktemp)

zpty editor zsh -f -i
# compadd is what all completion functions end in; with -O, -A and -D it only filters.
zpty -w editor '
PROMPT= RPROMPT=
autoload -U compinit; compinit -u -D
source $COMPLETION_FILE
compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    local -a __offered
    builtin compadd -A __offered "$@"
    print -rl -- "${__offered[@]}" >>$OFFERED
  fi
  builtin compadd "$@"
}
finished() { print -r END >>$OFFERED }
zle -N finished
bindkey "^I" complete-word
bindkey "^X" finished
print -r READY >>$OFFERED'

wait_for() {
  local i
  for ((i = 0; i < 1000; ++i)); do
    grep -qx -- "$1" "$OFFERED" && return 0
    zselect -t 2
  done
  print -u2 "zsh_candidates: no $1 within 20 s"
  rm -f -- "$OFFERED"
  return 1
}
wait_for READY || exit 1
zpty -w -n editor "$2"$'\t\x18'
wait_for END || exit 1
zpty -d editor
offered=$(grep -vx -e READY -e END -e '' "$OFFERED" | sort -u)
rm -f -- "$OFFERED"  # not by a trap: the fork that is the editor has it too
[[ -n $offered ]] && print -r -- "$offered"
