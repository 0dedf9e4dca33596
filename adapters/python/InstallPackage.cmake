# What the wheel holds besides the Python files, as install components of every build folder:
#
#   python          for the package's folder: the module, and a prefix with lib, libexec and include
#   python_scripts  for the folder of programs: the command itself
#   python_data     for the prefix: what the command looks for from there. Where the package lies relative to the programs
#                   differs from one kind of installation to the next, so that these files are there twice
#
# A wheel has no links, so that each library has its SONAME as its file name. --strip works as for targets.
function(strata_install_as file name component destination)
  install(PROGRAMS "${file}" DESTINATION "${destination}" RENAME "${name}" COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(CODE "
    if(CMAKE_INSTALL_DO_STRIP)
      execute_process(COMMAND \"${CMAKE_STRIP}\" \"\${CMAKE_INSTALL_PREFIX}/${destination}/${name}\" COMMAND_ERROR_IS_FATAL ANY)
    endif()" COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

strata_install_as("$<TARGET_FILE:strata_python>" _core.abi3.so python .)
strata_install_as("$<TARGET_FILE:strata>" "libstrata.so.${strata_soversion}" python lib)
foreach(place "python;lib" "python_data;libexec/strata")
  list(GET place 0 component)
  list(GET place 1 folder)
  strata_install_as("$<TARGET_FILE:strata_sim>" libstrata-sim.so.0 ${component} "${folder}")
  strata_install_as("$<TARGET_FILE:strata_sim_blas>" libstrata-sim-blas.so.0 ${component} "${folder}")
  strata_install_as("$<TARGET_FILE:strata_worker>" strata-worker ${component} libexec/strata)
endforeach()
if(TARGET strata_command)
  strata_install_as("$<TARGET_FILE:strata_command>" strata python_scripts .)
endif()
# What `strata exec` loads before a program, and a folder in which the simulated driver is libcuda.
if(TARGET strata_exec)
  strata_install_as("$<TARGET_FILE:strata_exec>" libstrata-exec.so python_data libexec/strata)
  strata_install_as("$<TARGET_FILE:strata_sim>" libcuda.so.1 python_data libexec/strata/strata-sim-as-cuda)
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/strata" DESTINATION include
  COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# PyTorch's shims, where they were built (.gitignore has them), and their sources, for versions that have none.
set(torch "${PROJECT_SOURCE_DIR}/adapters/torch")
if(EXISTS "${torch}")
  install(DIRECTORY strata/_torch DESTINATION . COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.so")
  install(DIRECTORY "${torch}/" DESTINATION _torch/src COMPONENT python EXCLUDE_FROM_ALL
    FILES_MATCHING PATTERN "*.cc" PATTERN "*.h")
endif()

# For linkers, which look for libstrata.so.
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/libstrata.so" @ONLY
  CONTENT "/* GNU ld script */\nINPUT(libstrata.so.@strata_soversion@)\n")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/libstrata.so" DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION . COMPONENT python_licenses EXCLUDE_FROM_ALL)
if(STRATA_HAVE_JEMALLOC)
  install(FILES "${strata_jemalloc_source}/COPYING" DESTINATION . RENAME LICENSE.jemalloc
    COMPONENT python_licenses EXCLUDE_FROM_ALL)
endif()
