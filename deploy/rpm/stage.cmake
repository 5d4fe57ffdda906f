# SPDX-License-Identifier: Apache-2.0
#
# CPack runs this after the components were installed and before they are packed. It gives folders the mode that
# they should have under any umask, and files the time of the release. For RPM it moves what Debian has
# elsewhere, and adds the preset, the licences, and the libraries of Debian that the class of RHEL 10 does not have.
function(set_modes_and_times)
  file(GLOB staged LIST_DIRECTORIES true ${CPACK_TEMPORARY_DIRECTORY}/*)
  # Not file(CHMOD_RECURSE): it fails on a link to another component's file.
  execute_process(COMMAND find ${staged} -type d -exec chmod 0755 {} + COMMAND_ERROR_IS_FATAL ANY)
  # rpm takes only later times for the release's.
  execute_process(COMMAND find ${staged} -exec touch --no-dereference --date=@$ENV{SOURCE_DATE_EPOCH} {} +
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()
set_modes_and_times()
if(NOT CPACK_GENERATOR STREQUAL "RPM")
  return()
endif()
set(rpm ${CPACK_KIPT_RPM_SOURCE})

foreach(package agent:kube-iptables-agent skew:kube-iptables-skew)
  string(REGEX MATCH "^(.*):(.*)$" matched ${package})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${CMAKE_MATCH_1})
  set(name ${CMAKE_MATCH_2})
  if(NOT EXISTS ${root})
    continue()
  endif()
  set(share ${root}/usr/share)
  file(REMOVE ${share}/doc/${name}/changelog.gz)
  file(MAKE_DIRECTORY ${share}/licenses)
  file(COPY ${rpm}/../../LICENSE DESTINATION ${share}/licenses/${name})
  file(RENAME ${share}/doc/${name}/copyright ${share}/licenses/${name}/copyright)
  set(program ${root}/usr/sbin/${name})

  if(name STREQUAL kube-iptables-agent)
    file(RENAME ${share}/zsh/vendor-completions ${share}/zsh/site-functions)
    file(MAKE_DIRECTORY ${root}/usr/lib)
    file(RENAME ${root}/lib/systemd ${root}/usr/lib/systemd)
    file(REMOVE_RECURSE ${root}/lib)
    file(COPY ${rpm}/80-kube-iptables-agent.preset DESTINATION ${root}/usr/lib/systemd/system-preset)
  endif()

  # By an absolute path: the loader ignores $ORIGIN where SELinux changes the domain (AT_SECURE).
  set(bundle /usr/lib64/${name})
  execute_process(COMMAND readelf --dynamic ${program} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "lib(unwind|prometheus-cpp-core)[.]so[^]]*" bundled "${dynamic}")
  foreach(library IN LISTS bundled)
    file(COPY ${CPACK_KIPT_RPM_LIBRARIES}/${library} DESTINATION ${root}${bundle} FOLLOW_SYMLINK_CHAIN)
  endforeach()
  execute_process(COMMAND patchelf --set-rpath ${bundle} ${program} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
set_modes_and_times()
