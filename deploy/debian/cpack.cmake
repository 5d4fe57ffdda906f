# SPDX-License-Identifier: Apache-2.0
#
# CPack reads this once for each kind of packages.
if(CPACK_GENERATOR STREQUAL "RPM")
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL dev lib)
endif()
# The time of every file in a package.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND date --utc --date=${CPACK_KIPT_RELEASE_DATE} +%s OUTPUT_VARIABLE seconds
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(ENV{SOURCE_DATE_EPOCH} ${seconds})
endif()
