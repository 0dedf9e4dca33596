# `cmake --install`: headers, the library, the command, a pkg-config file and a CMake package. No installed file names a
# path of the build machine, so that the prefix can be moved. The CUDA headers are not installed.
#
# The component `sim` is the simulated driver alone, for tests of programs that do not use Strata:
#   cmake --build BUILD --target strata_sim && cmake --install BUILD --component sim
include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/strata" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN sim EXCLUDE PATTERN sim.h EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
if(STRATA_HAVE_JEMALLOC)
  install(FILES "${strata_jemalloc_source}/COPYING" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME LICENSE.jemalloc)
endif()
install(TARGETS strata EXPORT strata-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TARGET strata_sim)
  install(TARGETS strata_sim LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT sim NAMELINK_COMPONENT sim)
  # Its stand-in for cuBLAS, if it was built: the target strata_sim does not build it.
  install(TARGETS strata_sim_blas
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" OPTIONAL COMPONENT sim NAMELINK_COMPONENT sim)
  install(FILES "${PROJECT_SOURCE_DIR}/include/strata/sim.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/strata"
    COMPONENT sim)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/strata/sim" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/strata"
    COMPONENT sim FILES_MATCHING PATTERN "*.h")
endif()
if(TARGET strata_exec)
  install(TARGETS strata_exec LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(DIRECTORY "${PROJECT_BINARY_DIR}/lib/strata-sim-as-cuda" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(TARGETS strata_worker RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/strata")
if(TARGET strata_command)
  install(TARGETS strata_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR) # tools/CMakeLists.txt
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}")
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/bash-completion" "${PROJECT_BINARY_DIR}/share/zsh"
      "${PROJECT_BINARY_DIR}/share/fish" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}")
  endif()
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/strata")
install(EXPORT strata-targets NAMESPACE strata:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/strata-config.cmake.in"
  "${PROJECT_BINARY_DIR}/cmake/strata-config.cmake" INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/strata-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/strata-config.cmake" "${PROJECT_BINARY_DIR}/cmake/strata-config-version.cmake"
  DESTINATION "${package_dir}")

# An absolute CMAKE_INSTALL_LIBDIR or INCLUDEDIR does not depend on the prefix.
file(RELATIVE_PATH strata_pc_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
foreach(folder LIBDIR INCLUDEDIR)
  set(strata_pc_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(strata_pc_${folder} "${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/strata.pc.in" "${PROJECT_BINARY_DIR}/cmake/strata.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/cmake/strata.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
