# Compiler and linker flags that every target of the project shares.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Strict C17 hides glibc's additions (dladdr, memfd_create, pthread_setname_np). A target that uses them adds this
# definition. It is empty, so that `#define _GNU_SOURCE` in a file is no redefinition.
set(STRATA_GNU_SOURCE "_GNU_SOURCE=")

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(STRATA_WERROR)
  add_compile_options(-Werror)
endif()

# Shared libraries must not have undefined symbols. With clang, the sanitizer's symbols are undefined in a library:
# clang links the sanitizer's runtime into programs only.
set(STRATA_NO_UNDEFINED LINKER:-z,defs)
if(STRATA_SANITIZE)
  add_compile_options(-fsanitize=${STRATA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${STRATA_SANITIZE})
  if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    set(STRATA_NO_UNDEFINED "")
  endif()
endif()

# gcc 12's leak sanitizer takes a thread-local block of a library that was opened at run time, if it lies 16 bytes behind
# the start of a page, for one of an old C library, and reads from an address that it finds there ("Tracer caught signal
# 11"). Programs have the libraries that call stacks are read with from their start, so that there are no such blocks.
if(STRATA_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(early " -lgcc_s") # before libunwind, which has functions of the same names
  foreach(name libdw.so.1 libelf.so.1 libunwind.so.8)
    find_library(STRATA_EARLY_${name} NAMES ${name})
    mark_as_advanced(STRATA_EARLY_${name})
    if(STRATA_EARLY_${name})
      string(APPEND early " ${STRATA_EARLY_${name}}")
    endif()
  endforeach()
  string(APPEND CMAKE_EXE_LINKER_FLAGS " -Wl,--no-as-needed${early} -Wl,--as-needed")
endif()

if(STRATA_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

# libFuzzer observes the branches of all code, the simulated driver included. Only the fuzz targets link its main.
if(STRATA_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang" OR NOT BUILD_TESTING)
    message(FATAL_ERROR "STRATA_FUZZ needs clang, and BUILD_TESTING for what the fuzz targets share with the tests")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
