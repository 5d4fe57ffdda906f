# SPDX-License-Identifier: Apache-2.0
#
# RPM packages of the components `agent` and `skew`, for the class of RHEL 10 and Fedora:
#
#   (cd build/release && cpack -G RPM)
#
# None of `dev`: its archives fit Debian's Abseil only.
set(rpm_source ${CMAKE_CURRENT_LIST_DIR})
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_RELEASE 1)
set(CPACK_RPM_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
# The programs as a whole, then their parts (deploy/debian/copyright).
set(CPACK_RPM_PACKAGE_LICENSE
    "GPL-3.0-or-later AND Apache-2.0 AND BSD-3-Clause AND BSL-1.0 AND LGPL-2.1-only AND LGPL-2.1-or-later AND MIT")
set(CPACK_RPM_PACKAGE_GROUP "System Environment/Daemons")
set(CPACK_RPM_PACKAGE_VENDOR "${KIPT_DEB_MAINTAINER}")
set(CPACK_RPM_PACKAGE_URL ${CPACK_DEBIAN_PACKAGE_HOMEPAGE})
# Other packages own these, or every system has them.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /etc /usr/sbin /usr/lib/systemd /usr/lib/systemd/system /usr/lib/systemd/system-preset /usr/share/man
    /usr/share/man/man5 /usr/share/man/man8 /usr/share/licenses /usr/share/bash-completion
    /usr/share/bash-completion/completions /usr/share/zsh /usr/share/zsh/site-functions)
# Two of Debian's libraries, which the class of RHEL 10 does not have, are in a folder of the package.
# Nothing of the machine or the hour gets into the package (SOURCE_DATE_EPOCH: deploy/release).
set(CPACK_RPM_SPEC_MORE_DEFINE "
%global packager ${KIPT_DEB_MAINTAINER}
%global _buildhost reproducible
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _build_id_links none
%global __requires_exclude ^lib(unwind|prometheus-cpp-core)[.]so.*$
%global __provides_exclude_from ^/usr/lib64/kube-iptables-.*$")
set(CPACK_PRE_BUILD_SCRIPTS ${rpm_source}/stage.cmake)
find_library(KIPT_LIBUNWIND unwind REQUIRED)
cmake_path(GET KIPT_LIBUNWIND PARENT_PATH CPACK_KIPT_RPM_LIBRARIES)
set(CPACK_KIPT_RPM_SOURCE ${rpm_source})

foreach(component IN ITEMS agent skew)
  string(TOUPPER ${component} upper)
  # The first line is the summary.
  string(FIND "${CPACK_COMPONENT_${upper}_DESCRIPTION}" "\n" at)
  string(SUBSTRING "${CPACK_COMPONENT_${upper}_DESCRIPTION}" 0 1 first)
  string(TOUPPER ${first} first)
  string(SUBSTRING "${CPACK_COMPONENT_${upper}_DESCRIPTION}" 1 ${at} rest)
  string(STRIP "${first}${rest}" CPACK_RPM_${upper}_PACKAGE_SUMMARY)
  math(EXPR at "${at} + 1")
  string(SUBSTRING "${CPACK_COMPONENT_${upper}_DESCRIPTION}" ${at} -1 CPACK_RPM_${upper}_PACKAGE_DESCRIPTION)
  set(CPACK_RPM_${upper}_PACKAGE_PROVIDES "bundled(libunwind), bundled(prometheus-cpp)")
  set(CPACK_RPM_${upper}_PACKAGE_NAME ${package_of_${component}})
endforeach()
set(CPACK_RPM_AGENT_PACKAGE_REQUIRES "procps-ng, systemd")
set(CPACK_RPM_AGENT_PACKAGE_SUGGESTS "nftables, kube-iptables-skew")
set(CPACK_RPM_AGENT_USER_FILELIST "%config(noreplace) /etc/kube-iptables-agent/config.yaml")
set(CPACK_RPM_AGENT_POST_INSTALL_SCRIPT_FILE ${rpm_source}/post)
set(CPACK_RPM_AGENT_PRE_UNINSTALL_SCRIPT_FILE ${rpm_source}/preun)
set(CPACK_RPM_AGENT_POST_UNINSTALL_SCRIPT_FILE ${rpm_source}/postun)
set(CPACK_RPM_SKEW_PACKAGE_REQUIRES "iptables, iproute")
