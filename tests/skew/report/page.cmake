# SPDX-License-Identifier: Apache-2.0
#
# Sets KIPT_PAGE_PARTS to a source file that holds the page's style, script and frame as strings, so
# that the program writes one page that needs no other file. Made again when one of them changes.
set(KIPT_PAGE_PARTS ${CMAKE_CURRENT_BINARY_DIR}/page_parts.cc)
file(READ ${CMAKE_CURRENT_LIST_DIR}/page.html KIPT_PAGE_HTML)
file(READ ${CMAKE_CURRENT_LIST_DIR}/page.css KIPT_PAGE_STYLE)
set(KIPT_PAGE_SCRIPT "")
# In the order in which the browser reads them: the last one starts.
foreach(part page_rules.js page_read.js page_cell.js page.js)
  file(READ ${CMAKE_CURRENT_LIST_DIR}/${part} text)
  string(APPEND KIPT_PAGE_SCRIPT "${text}")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/page_parts.cc.in ${KIPT_PAGE_PARTS} @ONLY)
foreach(part page.html page.css page_rules.js page_read.js page_cell.js page.js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/${part})
endforeach()
