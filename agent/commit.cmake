# SPDX-License-Identifier: Apache-2.0
#
# cmake -DSOURCE=DIR -DOUTPUT=FILE [-DCOMMIT=HASH] -P commit.cmake
#
# Writes the commit of the sources to FILE, as two C macros, and leaves FILE alone if it would stay the
# same. COMMIT is for sources without .git, as in an archive; without it their commit is "unknown".
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
set(tree unknown)
find_program(GIT git)
# A repository around unpacked sources is not theirs.
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --verify HEAD OUTPUT_VARIABLE head RESULT_VARIABLE no_head
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # git writes no index here: another git might be running.
  execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE} status --porcelain --untracked-files=no
                  OUTPUT_VARIABLE changes RESULT_VARIABLE no_status ERROR_QUIET)
  if(no_head EQUAL 0 AND no_status EQUAL 0)
    set(commit ${head})
    set(tree clean)
    if(changes)
      set(tree dirty)
    endif()
  endif()
elseif(COMMIT MATCHES "^[0-9a-f]+$")
  set(commit ${COMMIT})
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
     "#define KIPT_GIT_COMMIT \"@commit@\"\n#define KIPT_GIT_TREE_STATE \"@tree@\"\n")
