# strata::jemalloc: a private jemalloc for Strata's own host memory, hidden in the library.
#
#   STRATA_JEMALLOC=AUTO   jemalloc if its source is there and the build has no sanitizer and no fuzz targets, which
#                          must see each allocation; else the C library's allocator   (the default)
#   STRATA_JEMALLOC=ON     jemalloc; an error if it cannot be built. With the address sanitizer it is built in, and used
#                          where STRATA_HOST_MEMORY=arena: the sanitizer does not see those allocations
#   STRATA_JEMALLOC=OFF    the C library's allocator
#
# scripts/setup puts the source into build/third-party/jemalloc/source; another release from 5.3.0 on can be unpacked
# there. It is built beside the source, once for all build folders of the checkout, in parallel with Strata's sources.
#
# Configuration:
#   * Prefixed, hidden names and no `malloc`: neither the program's calls nor the program's own jemalloc reach this one.
#   * force_tls=0: jemalloc keeps its 2.6 kB of a thread behind a pthread key. The library has an initial-exec
#     thread-local word, so that all its thread-local memory must fit into the space that the loader reserves for
#     libraries opened with dlopen (1.6 kB); else dlopen fails with "cannot allocate memory in static TLS block".
#   * narenas:1, for jemalloc's own data: Strata's memory comes from an arena that core/base/arena.c creates. No
#     automatic thread caches, no sbrk (it belongs to the C library), no background thread.
#   * Not cache-oblivious: large blocks begin at a page, and take no page more. Pinned blocks need multiples of 256
#     bytes; with an alignment that is asked for, jemalloc would pass its caches by.
#   * The largest page size that kernels of the architecture have: jemalloc stops if the kernel's pages are larger.
set(STRATA_JEMALLOC "AUTO" CACHE STRING "Host memory from a private jemalloc: AUTO, ON or OFF")
set_property(CACHE STRATA_JEMALLOC PROPERTY STRINGS AUTO ON OFF)
set(STRATA_THIRD_PARTY "${PROJECT_SOURCE_DIR}/build/third-party" CACHE PATH
  "Folder with sources of others, and what is built of them")

set(strata_jemalloc_home "${STRATA_THIRD_PARTY}/jemalloc")
set(strata_jemalloc_source "${strata_jemalloc_home}/source")

set(strata_jemalloc_version 0)
if(EXISTS "${strata_jemalloc_source}/VERSION")
  file(READ "${strata_jemalloc_source}/VERSION" strata_jemalloc_version)
  string(REGEX MATCH "^[0-9.]+" strata_jemalloc_version "${strata_jemalloc_version}")
endif()

# Sets OUT to the reason why jemalloc cannot be built, or to "".
function(strata_jemalloc_obstacle out)
  find_program(STRATA_MAKE NAMES gmake make)
  mark_as_advanced(STRATA_MAKE)
  set(${out} "" PARENT_SCOPE)
  if(NOT EXISTS "${strata_jemalloc_source}/configure")
    set(${out} "there is no source in ${strata_jemalloc_source}; scripts/setup fetches it" PARENT_SCOPE)
  elseif(strata_jemalloc_version VERSION_LESS 5.3)
    set(${out} "the source in ${strata_jemalloc_source} is that of ${strata_jemalloc_version}; 5.3.0 is the first that was tried" PARENT_SCOPE)
  elseif(strata_jemalloc_home MATCHES "[][ \t\"'`#$&;:%()<>|*?\\]")
    set(${out} "its makefile cannot be used in a folder with such a name: ${strata_jemalloc_home}" PARENT_SCOPE)
  elseif(NOT STRATA_MAKE)
    set(${out} "there is no make to build it with" PARENT_SCOPE)
  elseif(CMAKE_CROSSCOMPILING)
    set(${out} "it is not built for another kind of machine" PARENT_SCOPE)
  elseif(STRATA_FUZZ OR STRATA_SANITIZE MATCHES "thread" OR (STRATA_SANITIZE AND NOT STRATA_JEMALLOC STREQUAL "ON"))
    set(${out} "sanitizers are to see each allocation" PARENT_SCOPE)
  endif()
endfunction()

set(STRATA_HAVE_JEMALLOC OFF)
if(STRATA_JEMALLOC STREQUAL "AUTO" OR STRATA_JEMALLOC)
  strata_jemalloc_obstacle(strata_obstacle)
  if(strata_obstacle STREQUAL "")
    set(STRATA_HAVE_JEMALLOC ON)
  elseif(STRATA_JEMALLOC STREQUAL "AUTO")
    message(STATUS "Host memory: the C library's allocator (${strata_obstacle})")
  else()
    message(FATAL_ERROR "STRATA_JEMALLOC is ${STRATA_JEMALLOC}, but ${strata_obstacle}.")
  endif()
else()
  message(STATUS "Host memory: the C library's allocator")
endif()
if(NOT STRATA_HAVE_JEMALLOC)
  return()
endif()

set(strata_jemalloc_page 16)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64|i.86)$")
  set(strata_jemalloc_page 12)
endif()
set(strata_jemalloc_options --with-jemalloc-prefix=strata_je_ --with-private-namespace=strata_ --without-export
  --disable-initial-exec-tls --disable-cxx --disable-doc --disable-shared --disable-cache-oblivious
  --with-lg-page=${strata_jemalloc_page} --with-lg-hugepage=21
  --with-malloc-conf=narenas:1,tcache:false,oversize_threshold:0,dss:disabled)
string(SHA256 strata_jemalloc_key "${strata_jemalloc_version} ${strata_jemalloc_options} ${CMAKE_SYSTEM_PROCESSOR}")
string(SUBSTRING "${strata_jemalloc_key}" 0 12 strata_jemalloc_key)
set(strata_jemalloc_build "${strata_jemalloc_home}/${strata_jemalloc_version}-${strata_jemalloc_key}")
set(strata_jemalloc_archive "${strata_jemalloc_build}/lib/libjemalloc_pic.a")

add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/jemalloc.stamp" BYPRODUCTS "${strata_jemalloc_archive}"
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${strata_jemalloc_source}" "-DBUILD=${strata_jemalloc_build}"
    "-DCOMPILER=${CMAKE_C_COMPILER}" "-DMAKE=${STRATA_MAKE}" "-DOPTIONS=${strata_jemalloc_options}"
    -P "${CMAKE_CURRENT_LIST_DIR}/BuildJemalloc.cmake"
  COMMAND "${CMAKE_COMMAND}" -E touch "${PROJECT_BINARY_DIR}/jemalloc.stamp"
  COMMENT "Host memory: jemalloc ${strata_jemalloc_version}" VERBATIM)
add_custom_target(strata_jemalloc_built DEPENDS "${PROJECT_BINARY_DIR}/jemalloc.stamp")

file(MAKE_DIRECTORY "${strata_jemalloc_build}/include")
add_library(strata_jemalloc STATIC IMPORTED GLOBAL)
add_library(strata::jemalloc ALIAS strata_jemalloc)
set_target_properties(strata_jemalloc PROPERTIES
  IMPORTED_LOCATION "${strata_jemalloc_archive}" INTERFACE_INCLUDE_DIRECTORIES "${strata_jemalloc_build}/include")
add_dependencies(strata_jemalloc strata_jemalloc_built)
message(STATUS "Host memory: jemalloc ${strata_jemalloc_version}, from ${strata_jemalloc_source}")
