# strata_cuda_runtime_headers(OUT): the folders of cuda_runtime.h and of the headers that it includes, for the tests of
# the headers that replace CUDA's calls; "" if they cannot be had. The package of cuda.h (cmake/CudaHeaders.cmake) has the
# first alone; the others, in crt/, are a package of 130 KB, which is unpacked in the build folder.
set(STRATA_CUDA_CRT_PACKAGE "nvidia-cuda-crt==13.0.*")

function(strata_cuda_runtime_headers out)
  set(${out} "" PARENT_SCOPE)
  if(NOT EXISTS "${strata_cuda_include}/cuda_runtime.h")
    return()
  endif()
  if(EXISTS "${strata_cuda_include}/crt/host_config.h")
    set(${out} "${strata_cuda_include}" PARENT_SCOPE)
    return()
  endif()
  set(home "${PROJECT_BINARY_DIR}/cuda-crt-headers")
  set(include "${home}/nvidia/cu13/include")
  find_program(python NAMES python3 NO_CACHE)
  if(python AND NOT EXISTS "${include}/crt/host_config.h")
    file(REMOVE_RECURSE "${home}")
    file(MAKE_DIRECTORY "${home}")
    execute_process(
      COMMAND "${python}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:
        --dest "${home}" "${STRATA_CUDA_CRT_PACKAGE}"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    file(GLOB wheel "${home}/*.whl")
    if(NOT failed AND wheel)
      file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${home}" PATTERNS "nvidia/cu13/include/*")
      file(REMOVE "${wheel}")
    endif()
  endif()
  if(EXISTS "${include}/crt/host_config.h")
    set(${out} "${strata_cuda_include};${include}" PARENT_SCOPE)
  endif()
endfunction()
