# strata_ptx_bytes(PTX FILE): writes a text of PTX as bytes for the initializer of an array of char, with a zero at the end.
function(strata_ptx_bytes ptx file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${ptx}")
  file(READ "${ptx}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}00")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  file(CONFIGURE OUTPUT "${file}" CONTENT "${bytes}\n" @ONLY)
endfunction()
