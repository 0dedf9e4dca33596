# strata::cuda_headers: cuda.h and cudaTypedefs.h. A build of Strata needs nothing else of a CUDA toolkit.
#
# STRATA_CUDA_HEADERS selects their source:
#   auto    an installed toolkit (CUDA_HOME, CUDA_PATH, the one of nvcc, /usr/local/cuda), else fetch   (the default)
#   fetch   NVIDIA's header package from the Python index, unpacked in the build folder
#   PATH    a folder that holds cuda.h
set(STRATA_CUDA_HEADERS "auto" CACHE STRING "auto, fetch, or a folder that holds cuda.h")
set(STRATA_CUDA_HEADERS_MINIMUM 13000) # the CUDA_VERSION whose declarations driver/ uses
set(STRATA_CUDA_HEADERS_PACKAGE "nvidia-cuda-runtime==13.0.*")

# Sets OUT to the CUDA_VERSION of FOLDER/cuda.h, or to 0 if one of the two headers is missing.
function(strata_cuda_headers_version folder out)
  set(${out} 0 PARENT_SCOPE)
  if(EXISTS "${folder}/cuda.h" AND EXISTS "${folder}/cudaTypedefs.h")
    file(STRINGS "${folder}/cuda.h" line REGEX "^#define CUDA_VERSION [0-9]+" LIMIT_COUNT 1)
    if(line MATCHES "([0-9]+)$")
      set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets OUT to the include folder of the first installed toolkit that is new enough, or to "".
function(strata_cuda_headers_installed out)
  set(roots "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
  find_program(nvcc nvcc NO_CACHE)
  if(nvcc)
    file(REAL_PATH "${nvcc}" nvcc)
    cmake_path(GET nvcc PARENT_PATH bin)
    cmake_path(GET bin PARENT_PATH root)
    list(APPEND roots "${root}")
  endif()
  list(APPEND roots /usr/local/cuda /usr)
  foreach(root IN LISTS roots)
    if(root STREQUAL "")
      continue()
    endif()
    strata_cuda_headers_version("${root}/include" version)
    if(version GREATER_EQUAL STRATA_CUDA_HEADERS_MINIMUM)
      set(${out} "${root}/include" PARENT_SCOPE)
      return()
    elseif(version GREATER 0)
      message(STATUS "CUDA headers in ${root}/include are too old (${version} < ${STRATA_CUDA_HEADERS_MINIMUM})")
    endif()
  endforeach()
  set(${out} "" PARENT_SCOPE)
endfunction()

function(strata_cuda_headers_give_up reason)
  message(FATAL_ERROR
    "${reason}\n"
    "Strata needs cuda.h and cudaTypedefs.h of CUDA 13.0 or later. One of these provides them:\n"
    "  * NVIDIA's toolkit, at least its package cuda-cudart-dev-13-0 (https://developer.nvidia.com/cuda-downloads),\n"
    "    with CUDA_HOME set if it is not in /usr/local/cuda;\n"
    "  * python3 with pip and a network (apt-get install python3-pip): the headers are then fetched at configure time;\n"
    "  * -DSTRATA_CUDA_HEADERS=PATH, where PATH is a folder that holds cuda.h.")
endfunction()

# Downloads and unpacks the header package, once for a build folder, and sets OUT to its include folder.
function(strata_cuda_headers_fetch out)
  set(home "${PROJECT_BINARY_DIR}/cuda-headers")
  set(include "${home}/nvidia/cu13/include")
  set(${out} "${include}" PARENT_SCOPE)
  strata_cuda_headers_version("${include}" version)
  if(version GREATER_EQUAL STRATA_CUDA_HEADERS_MINIMUM)
    return()
  endif()
  find_program(python NAMES python3 NO_CACHE)
  if(NOT python)
    strata_cuda_headers_give_up("There is no python3 to fetch the CUDA headers with.")
  endif()
  message(STATUS "Fetching the CUDA headers: ${STRATA_CUDA_HEADERS_PACKAGE}")
  file(REMOVE_RECURSE "${home}")
  file(MAKE_DIRECTORY "${home}")
  execute_process(
    COMMAND "${python}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:
      --dest "${home}" "${STRATA_CUDA_HEADERS_PACKAGE}"
    RESULT_VARIABLE failed ERROR_VARIABLE words OUTPUT_VARIABLE words)
  file(GLOB wheel "${home}/*.whl")
  if(failed OR NOT wheel)
    strata_cuda_headers_give_up("pip could not fetch the CUDA headers:\n${words}")
  endif()
  file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${home}" PATTERNS "nvidia/cu13/include/*")
  file(REMOVE "${wheel}")
  strata_cuda_headers_version("${include}" version)
  if(version LESS STRATA_CUDA_HEADERS_MINIMUM)
    strata_cuda_headers_give_up("The package ${STRATA_CUDA_HEADERS_PACKAGE} does not hold the headers in nvidia/cu13/include.")
  endif()
endfunction()

if(STRATA_CUDA_HEADERS STREQUAL "auto")
  strata_cuda_headers_installed(strata_cuda_include)
  if(strata_cuda_include STREQUAL "")
    strata_cuda_headers_fetch(strata_cuda_include)
  endif()
elseif(STRATA_CUDA_HEADERS STREQUAL "fetch")
  strata_cuda_headers_fetch(strata_cuda_include)
else()
  set(strata_cuda_include "${STRATA_CUDA_HEADERS}")
  strata_cuda_headers_version("${strata_cuda_include}" version)
  if(version LESS STRATA_CUDA_HEADERS_MINIMUM)
    strata_cuda_headers_give_up("STRATA_CUDA_HEADERS names ${strata_cuda_include}, which has no CUDA headers of that version.")
  endif()
endif()
message(STATUS "CUDA headers: ${strata_cuda_include}")

add_library(strata_cuda_headers INTERFACE)
add_library(strata::cuda_headers ALIAS strata_cuda_headers)
target_include_directories(strata_cuda_headers SYSTEM INTERFACE "${strata_cuda_include}")

# STRATA_NVTX_HEADERS: a folder that holds nvtx3/nvToolsExtMem.h, for the layer `nvtx`. If it is empty, creating the
# layer fails. Default: the folder of cuda.h, if the toolkit has the header; else NVIDIA's package from the Python
# index, unpacked in the build folder; else empty.
set(STRATA_NVTX_PACKAGE "nvidia-nvtx==13.*")

function(strata_nvtx_headers_fetch out)
  set(home "${PROJECT_BINARY_DIR}/nvtx-headers")
  set(include "${home}/nvidia/cu13/include")
  if(NOT EXISTS "${include}/nvtx3/nvToolsExtMem.h")
    find_program(python NAMES python3 NO_CACHE)
    if(python)
      file(REMOVE_RECURSE "${home}")
      file(MAKE_DIRECTORY "${home}")
      execute_process(
        COMMAND "${python}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:
          --dest "${home}" "${STRATA_NVTX_PACKAGE}"
        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      file(GLOB wheel "${home}/*.whl")
      if(NOT failed AND wheel)
        file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${home}" PATTERNS "nvidia/cu13/include/*")
        file(REMOVE "${wheel}")
      endif()
    endif()
  endif()
  set(${out} "" PARENT_SCOPE)
  if(EXISTS "${include}/nvtx3/nvToolsExtMem.h")
    set(${out} "${include}" PARENT_SCOPE)
  endif()
endfunction()

if(NOT DEFINED STRATA_NVTX_HEADERS)
  if(EXISTS "${strata_cuda_include}/nvtx3/nvToolsExtMem.h")
    set(STRATA_NVTX_HEADERS "${strata_cuda_include}")
  else()
    strata_nvtx_headers_fetch(STRATA_NVTX_HEADERS)
  endif()
endif()
if(STRATA_NVTX_HEADERS)
  message(STATUS "NVTX headers: ${STRATA_NVTX_HEADERS}")
  target_include_directories(strata_cuda_headers SYSTEM INTERFACE "${STRATA_NVTX_HEADERS}")
  target_compile_definitions(strata_cuda_headers INTERFACE STRATA_HAVE_NVTX)
else()
  message(STATUS "NVTX headers: none; the layer nvtx will refuse to be made")
endif()
