# The sweeps of tests/support/sweep.h, for every program that calls test_run_on: sweep_seeds.NAME, sweep_faults.NAME and
# sweep_edges.NAME. On the simulated driver only.
#
#   gcc, no sanitizer     all three
#   address sanitizer     faults: it finds what a failed call leaves behind
#   coverage              faults
#
# Not swept: timeline_limit uses up all timelines, which takes too long to repeat. stream_handles has a thread that runs
# freely, so that no two runs make the same calls. regions makes races for their reports.
set(STRATA_UNSWEPT "^(timeline_limit|stream_handles|regions)$")

set(sweeps "")
if(TARGET strata_sim AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  if(STRATA_COVERAGE)
    set(sweeps faults)
  elseif(NOT STRATA_SANITIZE)
    set(sweeps seeds faults edges)
  elseif(STRATA_SANITIZE MATCHES "address")
    set(sweeps faults)
  endif()
endif()

foreach(source IN LISTS STRATA_TEST_SOURCES)
  string(REGEX REPLACE "^(.*/)?test_(.*)\\.c$" "\\2" name "${source}")
  file(STRINGS ${source} runs REGEX "test_run_on" LIMIT_COUNT 1)
  if(NOT runs OR name MATCHES "${STRATA_UNSWEPT}")
    continue()
  endif()
  set(environment STRATA_DRIVER=sim STRATA_SIM_CHECK=1 "STRATA_SIM_LIBRARY=$<TARGET_FILE:strata_sim>")
  if(name STREQUAL "devices")
    list(APPEND environment STRATA_SIM_DEVICES=2)
  endif()
  if(STRATA_SANITIZE)
    # After a case failed, its objects are cleaned up, which may point to its locals: these must stay in the real stack.
    list(APPEND environment "ASAN_OPTIONS=detect_stack_use_after_return=0:protect_shadow_gap=0")
  endif()
  foreach(sweep IN LISTS sweeps)
    add_test(NAME sweep_${sweep}.${name} COMMAND test_${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(sweep_${sweep}.${name} PROPERTIES ENVIRONMENT "${environment};STRATA_TEST_SWEEP=${sweep}"
      TIMEOUT ${STRATA_TEST_TIMEOUT} LABELS sweep SKIP_RETURN_CODE 77 COST 50)
  endforeach()
endforeach()
