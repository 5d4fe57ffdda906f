# SPDX-License-Identifier: Apache-2.0
#
# cmake -DPATCH=FILE -DSOURCE=FILE -DRESULT=FILE -P apply_patch.cmake: SOURCE, changed by PATCH.
# Lines may have moved; the lines around them must be unchanged (fuzz 0).
file(REMOVE ${RESULT})
find_program(patch_program patch REQUIRED)
execute_process(COMMAND ${patch_program} --fuzz=0 --reject-file=- --output=${RESULT} ${SOURCE} ${PATCH}
                RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  file(REMOVE ${RESULT})
  message(FATAL_ERROR "The mutant ${PATCH} no longer applies to ${SOURCE}: write it anew for what \
the source is now.\n${said}")
endif()
