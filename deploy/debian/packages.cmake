# SPDX-License-Identifier: Apache-2.0
#
# The install components `agent` and `skew` (`dev` and `lib` are deploy/library/install.cmake), and four
# Debian packages, one per component (RPM: deploy/rpm):
#
#   cmake --preset release && cmake --build --preset release && (cd build/release && cpack)
#
# Of other prefixes than /usr: what belongs into /etc goes to PREFIX/etc, and the unit, which names
# /usr/sbin, is to be edited.
include(GNUInstallDirs)
set(packaged_components agent dev lib)
if(TARGET kube-iptables-skew)
  list(APPEND packaged_components skew)
endif()
set(package_of_agent kube-iptables-agent)
set(package_of_dev libkube-iptables-agent-dev)
set(package_of_lib libkube-iptables-agent0)
set(package_of_skew kube-iptables-skew)
set(debian_source ${CMAKE_CURRENT_LIST_DIR})
set(debian_build ${CMAKE_BINARY_DIR}/deploy/debian)
file(MAKE_DIRECTORY ${debian_build})

set(KIPT_DEB_MAINTAINER "kube-iptables-agent maintainers <maintainers@kube-iptables-agent.example>"
    CACHE STRING "Who answers for the packages")

# ---- what is made of the agent that was just built: completions, its manual page ----
set(packaged_files "")
add_library(kipt_manual_page STATIC ${debian_source}/manual_page.cc)
# Of this folder only, as kipt_library() does it.
set(include_root ${CMAKE_BINARY_DIR}/include/packages)
file(MAKE_DIRECTORY ${include_root}/deploy)
file(CREATE_LINK ${debian_source} ${include_root}/deploy/debian SYMBOLIC)
target_include_directories(kipt_manual_page PUBLIC ${include_root})
target_link_libraries(kipt_manual_page PUBLIC kipt::program PRIVATE kipt_warnings)

# The day of the release, so that each build of it makes the same files.
file(STRINGS ${CMAKE_SOURCE_DIR}/CHANGELOG.md heading REGEX "^## v${PROJECT_VERSION} [(]")
if(heading MATCHES "[(]([0-9-]+)[)]")
  set(KIPT_RELEASE_DATE ${CMAKE_MATCH_1})
else()
  file(TIMESTAMP ${CMAKE_SOURCE_DIR}/CHANGELOG.md KIPT_RELEASE_DATE "%Y-%m-%d" UTC)
endif()
function(kipt_compress source target)
  add_custom_command(OUTPUT ${target} COMMAND gzip -9nc ${source} > ${target}
                     DEPENDS ${source} VERBATIM)
  set(packaged_files ${packaged_files} ${target} PARENT_SCOPE)
endfunction()

function(kipt_install_program program component)
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR} COMPONENT ${component})
  install(FILES ${debian_build}/${program}.8.gz COMPONENT ${component}
          DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
endfunction()

foreach(shell bash zsh)
  set(completion ${debian_build}/kube-iptables-agent.${shell})
  add_custom_command(OUTPUT ${completion}
    COMMAND kube-iptables-agent completion ${shell} > ${completion}
    DEPENDS kube-iptables-agent VERBATIM)
  list(APPEND packaged_files ${completion})
endforeach()
install(FILES ${debian_build}/kube-iptables-agent.bash RENAME kube-iptables-agent COMPONENT agent
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions)
install(FILES ${debian_build}/kube-iptables-agent.zsh RENAME _kube-iptables-agent COMPONENT agent
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions)
add_executable(kipt_agent_manual_page ${debian_source}/agent_manual_page.cc)
target_link_libraries(kipt_agent_manual_page PRIVATE kipt_manual_page kipt_warnings)
set(page ${debian_build}/kube-iptables-agent.8)
configure_file(${debian_source}/kube-iptables-agent.8.in ${page}.in @ONLY)
add_custom_command(OUTPUT ${page}
  COMMAND kipt_agent_manual_page < ${page}.in > ${page}
  DEPENDS kipt_agent_manual_page ${page}.in VERBATIM)
kipt_compress(${page} ${page}.gz)
kipt_install_program(kube-iptables-agent agent)

if(TARGET kube-iptables-skew)
  set(page ${debian_build}/kube-iptables-skew.8)
  configure_file(${debian_source}/kube-iptables-skew.8.in ${page} @ONLY)
  kipt_compress(${page} ${page}.gz)
  kipt_install_program(kube-iptables-skew skew)
endif()

# ---- the rest of the agent's ----
set(page5 kube-iptables-agent.yaml.5)
# The page shows the configuration file, as text for roff.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${debian_source}/config.yaml)
file(READ ${debian_source}/config.yaml config)
string(STRIP "${config}" config)
string(REPLACE "\\" "\\e" config "${config}")
string(REPLACE "-" "\\-" config "${config}")
string(REPLACE "`" "\\(ga" config "${config}")
string(REPLACE "\n." "\n\\&." config "${config}")
string(REPLACE "\n'" "\n\\&'" config "${config}")
configure_file(${debian_source}/${page5}.in ${debian_build}/${page5} @ONLY)
kipt_compress(${debian_build}/${page5} ${debian_build}/${page5}.gz)
install(FILES ${debian_build}/${page5}.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 COMPONENT agent)

# GNU's own rule: of the prefix /usr, /etc is meant; and systemd of Debian 12 has its units in /lib.
# A configuration that is there stays.
set(agent_doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/kube-iptables-agent)
install(CODE "
  set(systemd \"${CMAKE_SOURCE_DIR}/deploy/systemd\")
  set(config \"${debian_source}/config.yaml\")
  set(examples \"${agent_doc}/examples\")"
  COMPONENT agent)
install(CODE [[
  set(root "${CMAKE_INSTALL_PREFIX}")
  if(root MATCHES "^(.*)/usr/?$")
    set(root "${CMAKE_MATCH_1}")
  endif()
  set(units "${root}/lib/systemd/system")
  set(examples "${CMAKE_INSTALL_PREFIX}/${examples}")
  file(INSTALL DESTINATION "${units}" TYPE FILE FILES "${systemd}/kube-iptables-agent.service"
                                                      "${systemd}/kube-iptables-agent.socket")
  file(INSTALL DESTINATION "${examples}" TYPE FILE FILES "${systemd}/nft-unprivileged.conf")
  foreach(file IN ITEMS ${units}/kube-iptables-agent.service ${examples}/nft-unprivileged.conf)
    file(READ "$ENV{DESTDIR}${file}" text)
    string(REPLACE "/usr/sbin/" "${CMAKE_INSTALL_PREFIX}/sbin/" text "${text}")
    string(REPLACE "--config=/etc/" "--config=${root}/etc/" text "${text}")
    file(WRITE "$ENV{DESTDIR}${file}" "${text}")
  endforeach()
  if(NOT EXISTS "$ENV{DESTDIR}${root}/etc/kube-iptables-agent/config.yaml")
    file(INSTALL DESTINATION "${root}/etc/kube-iptables-agent" TYPE FILE FILES "${config}")
  endif()]]
  COMPONENT agent)

# The documents, where they are in the sources and not compressed, so that their links work offline.
set(pictures deploy/audit.svg deploy/chains.svg deploy/plan.svg deploy/repair.svg
    tests/skew/skew-page.png)
# Data that documents refer to.
set(tables agent/audit/known_marks.csv)
file(GLOB_RECURSE documents RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/.github/*.md ${CMAKE_SOURCE_DIR}/agent/*.md ${CMAKE_SOURCE_DIR}/deploy/*.md
     ${CMAKE_SOURCE_DIR}/netlink/*.md ${CMAKE_SOURCE_DIR}/tests/*.md)
list(FILTER documents EXCLUDE REGEX /node_modules/)
foreach(document IN LISTS documents pictures tables ITEMS README.md CHANGELOG.md deploy/debian/copyright)
  get_filename_component(folder ${document} DIRECTORY)
  # The image is built without tests/.
  if(EXISTS ${CMAKE_SOURCE_DIR}/${document})
    install(FILES ${CMAKE_SOURCE_DIR}/${document} DESTINATION ${agent_doc}/${folder} COMPONENT agent)
  endif()
endforeach()

install(FILES ${debian_source}/lib/lintian-overrides COMPONENT lib
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides RENAME ${package_of_lib})
install(FILES ${CMAKE_SOURCE_DIR}/deploy/library/README.md COMPONENT dev
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package_of_dev})

# ---- Debian's own files, in every package ----
foreach(component IN LISTS packaged_components)
  set(changelog ${debian_build}/${component}/changelog)
  file(MAKE_DIRECTORY ${debian_build}/${component})
  add_custom_command(OUTPUT ${changelog}.gz
    COMMAND ${debian_source}/debian-changelog ${package_of_${component}} ${PROJECT_VERSION}
            ${KIPT_RELEASE_DATE} ${KIPT_DEB_MAINTAINER} ${CMAKE_SOURCE_DIR}/CHANGELOG.md > ${changelog}
    COMMAND gzip -9nf ${changelog}
    DEPENDS ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${debian_source}/debian-changelog VERBATIM)
  list(APPEND packaged_files ${changelog}.gz)
  install(FILES ${changelog}.gz ${debian_source}/copyright COMPONENT ${component}
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package_of_${component}})
endforeach()
add_custom_target(packaged ALL DEPENDS ${packaged_files})

# ---- the packages ----
set(CPACK_GENERATOR DEB)
set(CPACK_PROJECT_CONFIG_FILE ${debian_source}/cpack.cmake)
set(CPACK_KIPT_RELEASE_DATE ${KIPT_RELEASE_DATE})
set(CPACK_PACKAGE_NAME kube-iptables-agent)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${KIPT_DEB_MAINTAINER}")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL ${packaged_components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3178-iptables-cleanup)

set(CPACK_DEBIAN_AGENT_PACKAGE_NAME ${package_of_agent})
set(CPACK_DEBIAN_AGENT_PACKAGE_SECTION net)
set(CPACK_DEBIAN_AGENT_PACKAGE_SHLIBDEPS ON)
# The unit's ExecReload= runs procps' kill, which not every Debian has.
set(CPACK_DEBIAN_AGENT_PACKAGE_DEPENDS procps)
# On nf_tables it runs no program; on iptables-legacy it runs iptables-legacy-restore.
set(CPACK_DEBIAN_AGENT_PACKAGE_RECOMMENDS iptables)
set(CPACK_DEBIAN_AGENT_PACKAGE_SUGGESTS "nftables, kube-iptables-skew")
set(CPACK_DEBIAN_AGENT_PACKAGE_CONTROL_EXTRA
    ${debian_source}/conffiles ${debian_source}/postinst ${debian_source}/prerm
    ${debian_source}/postrm)
set(CPACK_COMPONENT_AGENT_DESCRIPTION "node agent for kubelet's iptables chains (KEP-3178)
Creates the iptables chains and rules that kubelet creates on a node,
in either mode of KEP-3178 (\"Cleaning up IPTables Chain Ownership\"). It
writes them through nf_tables or iptables-legacy, repairs damage at once, and
names the process that did the damage.

The service starts in observe mode: it plans and reports, and changes nothing
until you set \"observe: false\" in /etc/kube-iptables-agent/config.yaml.")

# CPack strips programs only.
install(CODE "
  if(CMAKE_INSTALL_DO_STRIP)
    file(GLOB archives \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/lib*.a\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug --enable-deterministic-archives
                            \${archives} COMMAND_ERROR_IS_FATAL ANY)
  endif()" COMPONENT dev)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${package_of_dev})
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "${package_of_lib} (= ${PROJECT_VERSION}), libabsl-dev, libmnl-dev, libnftnl-dev (>= 1.2.4)")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "cmake, pkg-config")
set(CPACK_COMPONENT_DEV_DESCRIPTION "node agent for kubelet's iptables chains (development files)
Libraries and headers for programs that do what kube-iptables-agent does. In
C++20: Kubernetes' feature gates, nf_tables rules over netlink, and the agent
with its event loop. In C: the agent. The Go package, which uses the C
interface, is included as source. CMake's find_package() and pkg-config find
the libraries.

Version 0: the C++ interface is not frozen.")

set(CPACK_DEBIAN_LIB_PACKAGE_NAME ${package_of_lib})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIB_PACKAGE_SHLIBDEPS ON)
# Next to the symbols file, for packages whose builders do not read that.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
# On nf_tables it runs no program; on iptables-legacy it runs iptables-legacy-restore.
set(CPACK_DEBIAN_LIB_PACKAGE_SUGGESTS iptables)
set(CPACK_DEBIAN_LIB_PACKAGE_CONTROL_EXTRA ${debian_source}/lib/symbols ${debian_source}/lib/triggers)
set(CPACK_COMPONENT_LIB_DESCRIPTION "node agent for kubelet's iptables chains (shared library)
Keeps kubelet's iptables chains and rules (KEP-3178) in place, inside a program
in C, Go or another language that can call C. It is the library of
kube-iptables-agent with a stable binary interface.")

set(CPACK_DEBIAN_SKEW_PACKAGE_NAME ${package_of_skew})
set(CPACK_DEBIAN_SKEW_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SKEW_PACKAGE_SHLIBDEPS ON)
# Without iptables and ip it makes no node; the others are companions of some cells.
set(CPACK_DEBIAN_SKEW_PACKAGE_DEPENDS "iptables, iproute2")
set(CPACK_DEBIAN_SKEW_PACKAGE_RECOMMENDS
    "kube-iptables-agent, nftables, ipset")
set(CPACK_COMPONENT_SKEW_DESCRIPTION "upgrade and version-skew harness for kubelet's iptables chains
Sends real packets through a node made of network namespaces, for every pair
of kubelet and kube-proxy versions. Each pair runs with kubelet, and with
kube-iptables-agent in its place. Reports whether an upgrade is safe, in which
order, and why.")

include(deploy/rpm/packages.cmake)
include(CPack)

# As root, and with the network for Debian 12's packages. Of other build types nobody makes packages.
if(KIPT_BUILD_TESTS AND CMAKE_BUILD_TYPE STREQUAL Release)
  add_test(NAME Packages.TriedInDebian12 COMMAND ${debian_source}/try --build ${CMAKE_BINARY_DIR})
  set_tests_properties(Packages.TriedInDebian12 PROPERTIES LABELS packages+long TIMEOUT 600
                       PROCESSORS 3 COST 60)
endif()
