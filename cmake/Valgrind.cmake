# The tests under Valgrind: for each test NAME, memcheck.NAME (errors, leaks) and drd.NAME (races, misuse of locks).
# They belong to the configurations `memcheck` and `drd`, so that ctest runs them only on request:
#
#   ctest --preset release -C memcheck -L memcheck          all of them
#   ctest --preset release -C memcheck -L memcheck_short    those that scripts/test runs
#
# DRD instead of Helgrind: neither recognizes C11 atomics, and both report the same lock-free code. Helgrind takes two
# to ten times as long, much longer if a thread polls, and only DRD checks semaphores. DRD checks the code under locks
# (all of the simulated driver, most of the library), as it is optimized and installed. tests/valgrind.supp suppresses
# each lock-free protocol; the thread sanitizer checks those, as it understands atomics.
find_program(STRATA_VALGRIND valgrind)
find_path(STRATA_VALGRIND_INCLUDE_DIR valgrind/memcheck.h)
mark_as_advanced(STRATA_VALGRIND STRATA_VALGRIND_INCLUDE_DIR)

# Valgrind does not know simulated memory without its header, does not run with a sanitizer, and 3.19 cannot read the
# debug information of clang 14.
set(STRATA_VALGRIND_TESTS OFF)
if(BUILD_TESTING AND STRATA_VALGRIND AND NOT STRATA_SANITIZE AND NOT STRATA_COVERAGE
    AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  set(STRATA_VALGRIND_TESTS ON)
endif()

# Not under Valgrind: debuggers runs Valgrind itself; the tests of tests/install run compilers; sim_check_cost measures
# a ratio of times; find_an_overrun and reports have bugs that Valgrind finds; asymmetric tests unordered stores and
# loads of two threads; last_threads needs pidfd_open, which Valgrind 3.19 lacks; what a reset takes
# (resets) stays in tables that memcheck cannot follow; give_back, neighbours and pool_neighbours need addresses for several pools.
set(STRATA_NOT_UNDER_VALGRIND
  "^(asymmetric|debuggers|give_back|last_threads|neighbours|pool_neighbours|reports|resets|an_outside_program.*|sim_check_cost[.].*|examples[.]find_an_overrun[.].*)$")

# Not under DRD: the threads of busy_flag, peers and reference_threads synchronize with atomics only, so that DRD reports all their accesses;
# the thread sanitizer understands them.
set(STRATA_NOT_UNDER_drd "^(busy_flag|peers|reference_threads)$")

# Only with --full under memcheck: all but one policy of a test, which delays work, and tests that are too slow for a
# stage of one minute.
set(STRATA_LONG_UNDER_memcheck "[.](early|random)$|^(address_index|bench[.](driver_calls|every_row).*|blocks|book_costs|budget_accounts|budget_deadlock|budget_files|budget_idle|budget_killed|budget_limits|budget_peaks|budget_reuse|budget_shared|budget_slots|budget_threads|capture_memory.*|capture_order.*|captures|coming_from_cuda|command|counters|devices|dlpack.*|driver|driver_answers.*|examples[.](decode|graphs|own_layer|references|replace_cuda_malloc|stack_from_text).*|failing_calls|freeing.*|graph_changes.*|graph_ends.*|graph_model.*|graph_threads.*|graphed.*|graphs.*|guard[.].*|guard_calls.*|guard_exit|guard_faults|guard_planted[.].*|guard_reports|guard_sampling[.].*|guard_sampling_faults|guard_sampling_refused|help|host_memory|launch.*|layers|leaks|library|log_calls|log_files|log_follow|log_moments|log_places|log_reader|log_refusals|log_streams|memory|missing_events|model.*|nvtx|orderings.*|output_files|peers|per_thread|pool_borders|pool_decay.*|pool_deterministic|pool_model.*|pool_placing|pool_policy|pool_polling|pool_source.*|pool_threads|pool_trims|pool_users.*|pool_weaknesses.*|privileges|process|reference_ends|reference_threads|regions|replay|replay_faults|replay_kernels|replay_parts|resources.*|runtime|scalar.*|shim|sim_check_bugs.*|sim_check_dropped.*|sim_check_flag.*|sim_check_leaks.*|sim_check_parts.*|sim_check_reports.*|sim_check_values.*|sim_start.*|sim_traffic.*|sim_vmm_ends.*|stacks|statistics_threads|stream_handles|stream_waits.*|streams.*|timeline_calls.*|timeline_limit|timelines.*|trace)$")

# Without --full, DRD checks the tests whose threads share data under locks, semaphores and conditions, which it
# understands: a part of the simulated driver and of the sources, and the counters of budget and statistics. The other tests take
# the lock-free paths, of which it reports what tests/valgrind.supp does not name, and how they are named depends on
# what a compiler inlines; the thread sanitizer checks them all.
set(STRATA_SHORT_UNDER_drd "^(sim_(capture|faults|hooks|kernels|memory|values)[.]random|direct[.]random|binning_orphans|budget_accounts|budget_retired|budget_slots|callback|counters|driver_scope|emitter|failure_callback|managed|pinned|replay_kernels)$")

# strata_under_valgrind(name program [argument...]): registers the Valgrind tests of a test that runs the program.
# Deferred to the end of the folder's CMakeLists.txt, when the test's properties are complete.
function(strata_under_valgrind name)
  if(STRATA_VALGRIND_TESTS AND NOT name MATCHES "${STRATA_NOT_UNDER_VALGRIND}")
    set(words "")
    foreach(word IN LISTS ARGN)
      string(APPEND words " [==[${word}]==]")
    endforeach()
    cmake_language(EVAL CODE "cmake_language(DEFER CALL strata_add_valgrind_tests [==[${name}]==] ${words})")
  endif()
endfunction()

# Valgrind also traces the children of a test, but not programs of the system.
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
  # Without the simulated driver's checker, which is slow; its own tests turn it on.
  list(FILTER environment EXCLUDE REGEX "^STRATA_SIM_CHECK")
  # Under Valgrind, a process has fewer addresses than the pools of a large device reserve.
  list(APPEND environment STRATA_TEST_VALGRIND=1 STRATA_SIM_MEMORY=4GiB)
  math(EXPR timeout "${STRATA_TEST_TIMEOUT} * 2") # the machine may be busy
  foreach(tool memcheck drd)
    if(STRATA_NOT_UNDER_${tool} AND name MATCHES "${STRATA_NOT_UNDER_${tool}}")
      continue()
    endif()
    add_test(NAME ${tool}.${name} CONFIGURATIONS ${tool} WORKING_DIRECTORY "${folder}"
      COMMAND "${STRATA_VALGRIND}" --tool=${tool} ${STRATA_VALGRIND_OPTIONS} ${STRATA_${tool}_OPTIONS} ${ARGN})
    set(labels ${tool})
    if(tool STREQUAL "memcheck" AND NOT name MATCHES "${STRATA_LONG_UNDER_memcheck}" OR
        tool STREQUAL "drd" AND name MATCHES "${STRATA_SHORT_UNDER_drd}")
      list(APPEND labels ${tool}_short)
    endif()
    set_tests_properties(${tool}.${name} PROPERTIES
      ENVIRONMENT "${environment}" TIMEOUT ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77)
    if(pass) # ctest ignores the exit status then: Valgrind's output decides
      set_tests_properties(${tool}.${name} PROPERTIES
        PASS_REGULAR_EXPRESSION "${pass}" FAIL_REGULAR_EXPRESSION "==[0-9]+== ")
    endif()
  endforeach()
endfunction()
