# Libraries of the tools and the tests: strata::jansson, strata::zlib, strata::cmocka. The library itself uses none.
#
# Static archives are preferred: then a build folder runs on a machine without these libraries. If there is only a
# shared library (Debian's cmocka), it is copied into the build folder's lib/, where programs look first.
function(strata_third_party name header)
  find_path(STRATA_${name}_INCLUDE_DIR ${header})
  find_library(STRATA_${name}_LIBRARY NAMES lib${name}.a ${name})
  if(NOT STRATA_${name}_INCLUDE_DIR OR NOT STRATA_${name}_LIBRARY)
    message(FATAL_ERROR "${header} or lib${name} is missing. scripts/setup installs what a build needs;\n"
      "-DSTRATA_TOOLS=OFF builds the library and the simulated driver alone, which need neither.")
  endif()
  mark_as_advanced(STRATA_${name}_INCLUDE_DIR STRATA_${name}_LIBRARY)

  add_library(strata_${name} INTERFACE)
  string(REGEX REPLACE "^z$" "zlib" alias "${name}")
  add_library(strata::${alias} ALIAS strata_${name})
  target_include_directories(strata_${name} SYSTEM INTERFACE "${STRATA_${name}_INCLUDE_DIR}")
  target_link_libraries(strata_${name} INTERFACE "${STRATA_${name}_LIBRARY}")

  if(NOT STRATA_${name}_LIBRARY MATCHES "\\.a$")
    file(REAL_PATH "${STRATA_${name}_LIBRARY}" file)
    file(GLOB links "${STRATA_${name}_LIBRARY}.*")
    file(COPY "${file}" ${links} DESTINATION "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  endif()
endfunction()

strata_third_party(z zlib.h)
strata_third_party(jansson jansson.h)
if(BUILD_TESTING)
  strata_third_party(cmocka cmocka.h)
endif()
