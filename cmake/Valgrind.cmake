# The tests once more, under Valgrind.
#
# For the test NAME there are memcheck.NAME, which fails at an error or a leak, and drd.NAME, which fails at a race or a
# wrong use of a lock. They have the configurations `memcheck` and `drd`, so that ctest only knows them where it is told:
#
#   ctest --preset release -C memcheck -L memcheck          all of them
#   ctest --preset release -C memcheck -L memcheck_short    those that scripts/test runs
#
# DRD and not Helgrind: neither knows C11's atomics, whose plain loads and stores it takes for those of anything else,
# and both report the same lock-free paths; Helgrind takes two to ten times as long over this suite, far more where a
# thread polls, and DRD alone also checks semaphores. What is lock-free is the thread sanitizer's to judge, which
# understands atomics; tests/valgrind.supp names it for DRD, protocol by protocol. What stands between locks, which is all of
# the simulated driver and most of the rest, DRD judges in the code that is shipped, as it was optimized.
find_program(STRATA_VALGRIND valgrind)
find_path(STRATA_VALGRIND_INCLUDE_DIR valgrind/memcheck.h)
mark_as_advanced(STRATA_VALGRIND STRATA_VALGRIND_INCLUDE_DIR)

# Valgrind sees nothing of simulated memory without its header, has no place beside a sanitizer, and 3.19 gives up on the
# debug information that clang 14 writes.
set(STRATA_VALGRIND_TESTS OFF)
if(BUILD_TESTING AND STRATA_VALGRIND AND NOT STRATA_SANITIZE AND NOT STRATA_COVERAGE
    AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  set(STRATA_VALGRIND_TESTS ON)
endif()

# What the two do not run. Of both: `debuggers` runs Valgrind itself, the test of the installed tree runs compilers,
# sim_check_cost is about a ratio of times, find_an_overrun has a bug that Valgrind finds, too, and asymmetric is about two
# threads that store and load without an order.
set(STRATA_NOT_UNDER_VALGRIND
  "^(asymmetric|debuggers|an_outside_program.*|sim_check_cost[.].*|examples[.]find_an_overrun[.].*)$")

# And DRD alone: the threads of peers begin, end and hand over by atomic words, so that all that they touch looks like a
# race to it.
set(STRATA_NOT_UNDER_drd "^peers$")

# What is left to --full: a test under more than one policy is run under one that puts work off, and these take more than
# their share of three minutes.
set(STRATA_LONG_UNDER_memcheck "[.](early|random)$|^(blocks|book_costs|pool_source.*|guard_reports|sim_check_reports.*|bench[.]every_row.*|cells|command|driver|driver_answers.*|failing_calls|guard_exit|guard_planted[.].*|guard_sampling_faults|guard_sampling_refused|host_memory|leaks|log_calls|log_files|log_follow|log_places|log_reader|log_streams|peers|pool_asking|pool_deterministic|pool_slack|process|replay|shim|sim_check_bugs.*|sim_check_dropped.*|sim_start.*|sim_traffic.*|sim_vmm_ends.*|streams.*|timeline_limit)$")
set(STRATA_LONG_UNDER_drd "[.](early|late)$|^(bench[.].*|blocks|book_costs|budget|captures|command|completions|deferred|devices|driver|driver_answers.*|examples[.].*|failing_calls|freeing.*|guard_exit|guard_planted[.].*|guard_reports|guard_sampling.*|host_memory|launch.*|layer_stacks|layers|leaks|log_calls|log_files|log_follow|log_places|log_reader|logging|model.*|orderings.*|pool.*|binning|process|ptds|replay|resources.*|runtime|shim|sim_check_bugs.*|sim_check_dropped.*|sim_check_reports.*|sim_traffic.*|sim_vmm_ends.*|stacks|status|stream_(ends|waits).*|streams.*|timeline_calls.*|timeline_limit|timelines.*|usage|uses.*)$")

# strata_under_valgrind(name program [argument...]): the test of that name, which runs that program, also under Valgrind.
# What the test finds in its environment is taken over at the end of the folder's CMakeLists.txt.
function(strata_under_valgrind name)
  if(STRATA_VALGRIND_TESTS AND NOT name MATCHES "${STRATA_NOT_UNDER_VALGRIND}")
    set(words "")
    foreach(word IN LISTS ARGN)
      string(APPEND words " [==[${word}]==]")
    endforeach()
    cmake_language(EVAL CODE "cmake_language(DEFER CALL strata_add_valgrind_tests [==[${name}]==] ${words})")
  endif()
endfunction()

# Children that a test starts are traced too, but for what is not ours.
set(STRATA_VALGRIND_OPTIONS -q --error-exitcode=98 --trace-children=yes "--trace-children-skip=/bin/*,/usr/*"
  --num-callers=24 --fair-sched=yes "--suppressions=${PROJECT_SOURCE_DIR}/tests/valgrind.supp")
set(STRATA_memcheck_OPTIONS --leak-check=full --show-leak-kinds=definite,possible
  --errors-for-leak-kinds=definite,possible)
set(STRATA_drd_OPTIONS --first-race-only=yes)

function(strata_add_valgrind_tests name)
  get_test_property(${name} ENVIRONMENT environment)
  get_test_property(${name} WORKING_DIRECTORY folder)
  get_test_property(${name} PASS_REGULAR_EXPRESSION pass)
  if(NOT folder)
    set(folder "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  list(TRANSFORM environment REPLACE "^STRATA_DRIVER=.*" "STRATA_DRIVER=sim")
  # The simulated driver's checker, which keeps a call stack of every call, watches the tests elsewhere; here its own tests
  # turn it on.
  list(FILTER environment EXCLUDE REGEX "^STRATA_SIM_CHECK")
  # Valgrind has fewer addresses to give than pools of a large device reserve.
  list(APPEND environment STRATA_TEST_VALGRIND=1 STRATA_SIM_MEMORY=4GiB)
  math(EXPR timeout "${STRATA_TEST_TIMEOUT} * 2") # others may be at work on the machine, too
  foreach(tool memcheck drd)
    if(STRATA_NOT_UNDER_${tool} AND name MATCHES "${STRATA_NOT_UNDER_${tool}}")
      continue()
    endif()
    add_test(NAME ${tool}.${name} CONFIGURATIONS ${tool} WORKING_DIRECTORY "${folder}"
      COMMAND "${STRATA_VALGRIND}" --tool=${tool} ${STRATA_VALGRIND_OPTIONS} ${STRATA_${tool}_OPTIONS} ${ARGN})
    set(labels ${tool})
    if(NOT name MATCHES "${STRATA_LONG_UNDER_${tool}}")
      list(APPEND labels ${tool}_short)
    endif()
    set_tests_properties(${tool}.${name} PROPERTIES
      ENVIRONMENT "${environment}" TIMEOUT ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77)
    if(pass) # then the exit status says nothing, and what Valgrind writes must
      set_tests_properties(${tool}.${name} PROPERTIES
        PASS_REGULAR_EXPRESSION "${pass}" FAIL_REGULAR_EXPRESSION "==[0-9]+== ")
    endif()
  endforeach()
endfunction()
