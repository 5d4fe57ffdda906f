# SPDX-License-Identifier: Apache-2.0
#
# The install component `dev`: three archives, their public headers, and how CMake and pkg-config
# find them; the C API's header and link. Component `lib`: the C API's shared library. What is installed
# may be moved as a whole, and names no path of the machine that built it: the archives' own dependencies
# are named as targets and modules, which the machine that links them looks up for itself.
# tests/library/ holds it to that.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(library_headers ${CMAKE_INSTALL_INCLUDEDIR}/kube-iptables-agent)
set(library_package ${CMAKE_INSTALL_LIBDIR}/cmake/kube-iptables-agent)

# One export each: whoever asks for one component needs the dependencies of no other.
foreach(library featuregates netlink agent)
  install(TARGETS kipt_${library} EXPORT kipt-${library}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
          INCLUDES DESTINATION ${library_headers})
  install(EXPORT kipt-${library} NAMESPACE kipt:: FILE kube-iptables-agent-${library}.cmake
          DESTINATION ${library_package} COMPONENT dev)
  get_target_property(headers kipt_${library} KIPT_PUBLIC_HEADERS)
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH room)
    install(FILES ${PROJECT_SOURCE_DIR}/${library}/${header}
            DESTINATION ${library_headers}/${library}/${room} COMPONENT dev)
    list(APPEND KIPT_REFERENCE_HEADERS ${PROJECT_SOURCE_DIR}/${library}/${header})
  endforeach()
endforeach()

set(library_config ${PROJECT_BINARY_DIR}/deploy/library)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kube-iptables-agent-config.cmake.in
                              ${library_config}/kube-iptables-agent-config.cmake
                              INSTALL_DESTINATION ${library_package}
                              NO_SET_AND_CHECK_MACRO)
# Before 1.0 the API may change with every minor release, and with no other.
write_basic_package_version_file(${library_config}/kube-iptables-agent-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${library_config}/kube-iptables-agent-config.cmake
              ${library_config}/kube-iptables-agent-config-version.cmake
        DESTINATION ${library_package} COMPONENT dev)

set(library_modules ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${library_modules}
           OUTPUT_VARIABLE library_prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/kube-iptables-agent.pc.in
               ${library_config}/kube-iptables-agent.pc @ONLY)
install(FILES ${library_config}/kube-iptables-agent.pc DESTINATION ${library_modules} COMPONENT dev)

# ---- the C API ----
install(TARGETS kipt_capi_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib
        NAMELINK_COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/agent/capi/kube_iptables_agent.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
configure_file(${CMAKE_CURRENT_LIST_DIR}/kube-iptables-agent-c.pc.in ${library_config}/kube-iptables-agent-c.pc @ONLY)
install(FILES ${library_config}/kube-iptables-agent-c.pc DESTINATION ${library_modules} COMPONENT dev)

# In Debian's place for Go sources that others build with.
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/go/kubeiptables COMPONENT dev
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/gocode/src/kube-iptables-agent.example)

# ---- the reference, from the comments of what is installed ----
find_program(KIPT_DOXYGEN doxygen)
if(KIPT_DOXYGEN)
  list(JOIN KIPT_REFERENCE_HEADERS " " reference_headers)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${library_config}/Doxyfile @ONLY)
  add_custom_target(reference
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/reference
    COMMAND ${KIPT_DOXYGEN} ${library_config}/Doxyfile
    COMMENT "Writing ${PROJECT_BINARY_DIR}/reference/html" VERBATIM)
else()
  # Packages are built, and tests run, where nobody reads the reference.
  add_custom_target(reference
    COMMAND ${CMAKE_COMMAND} -E echo
            "reference: doxygen is missing: deploy/install-packages library, and configure anew"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
