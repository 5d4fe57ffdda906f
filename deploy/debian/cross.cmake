# SPDX-License-Identifier: Apache-2.0
#
# CMake's toolchain file for a cross build with Debian 12's compilers and libraries, in the root that
# deploy/debian/cross makes. The preset names the architecture.
set(KIPT_ARCHITECTURE "" CACHE STRING "Debian's name of the architecture: arm64, s390x")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES KIPT_ARCHITECTURE)
if(KIPT_ARCHITECTURE STREQUAL arm64)
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
elseif(KIPT_ARCHITECTURE STREQUAL s390x)
  set(CMAKE_SYSTEM_PROCESSOR s390x)
else()
  message(FATAL_ERROR "KIPT_ARCHITECTURE is '${KIPT_ARCHITECTURE}': use the preset arm64 or s390x")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_CXX_COMPILER ${CMAKE_LIBRARY_ARCHITECTURE}-g++)
set(CMAKE_STRIP ${CMAKE_LIBRARY_ARCHITECTURE}-strip)
set(PKG_CONFIG_EXECUTABLE ${CMAKE_LIBRARY_ARCHITECTURE}-pkg-config)
# Programs that were just built make manual pages, completion and lists of tests.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${CMAKE_SYSTEM_PROCESSOR}-static)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# cpack would take this machine's.
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${KIPT_ARCHITECTURE})
