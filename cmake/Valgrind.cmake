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
# loads of two threads; children of isolated_forks have memory of threads that they lack, and hold it nowhere; last_threads needs pidfd_open, which Valgrind 3.19 lacks; what a reset takes
# (resets, budget_shared_resets, reset_addresses) stays in tables that memcheck cannot follow; blas, blas_*, libraries and sim_blas run OpenBLAS, whose kernels Valgrind may not know; give_back, neighbours and pool_neighbours need addresses for several pools.
set(STRATA_NOT_UNDER_VALGRIND
  "^(asymmetric|(sim_)?blas.*|libraries|debuggers|give_back|isolated_forks|last_threads|neighbours|pool_neighbours|reports|reset_addresses|(budget_shared_)?resets|an_outside_program.*|sim_check_cost[.].*|examples[.]find_an_overrun[.].*)$")

# Not under DRD: the threads of biased_lock, budget_shared_quotas, busy_flag, peers, pool_own_frees and reference_threads, and a device service and its senders (a mailbox
# under a strata_spin, futures), synchronize with atomics only, so that DRD reports all their accesses; the thread sanitizer understands them.
set(STRATA_NOT_UNDER_drd "^(biased_lock|budget_shared_quotas|busy_flag|peers|pool_own_frees|reference_threads|(service|isolated|killed_workers|worker_parts).*)$")

# Without --full, memcheck checks these, which take it half a minute: from each folder the tests of what has memory of its own,
# and of the simulated driver one policy, which delays work.
set(STRATA_SHORT_UNDER_memcheck "^(binning|binning_options|budget|budget_calls|budget_retired|budget_waiting|call_stack|callback|deferred|device_state|failure_callback|layer_stacks|log_requests|logging|managed|pinned|pool|pool_cache|pool_free_waits|pool_sharing|reference_memory|stack_text|statistics|status|stream_ends|thread_sanitizer|(async|binning_moments|conditionals|direct|fence|foreign_memory|graph_events|graph_parts|pool_hits|pool_limit|references|stream_frees|uses|uses_refused|sim_(capture|check_memory|faults|graph_memory|graphs|host_memory|kernels|memory|streams|vmm))[.]late|examples[.]first_program[.]late|examples[.]graph_memory[.]late|examples[.]two_streams[.]late)$")

# Without --full, DRD checks the tests whose threads share data under locks, semaphores and conditions, which it
# understands: a part of the simulated driver and of the sources, and budgets. The other tests take
# the lock-free paths, of which it reports what tests/valgrind.supp does not name, and how they are named depends on
# what a compiler inlines; the thread sanitizer checks them all.
set(STRATA_SHORT_UNDER_drd "^(sim_(capture|faults|hooks|kernels|memory|values)[.]random|direct[.]random|binning_orphans|budget_accounts|budget_retired|callback|driver_scope|emitter|failure_callback|managed|pinned|replay_kernels)$")

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
    if(name MATCHES "${STRATA_SHORT_UNDER_${tool}}")
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
