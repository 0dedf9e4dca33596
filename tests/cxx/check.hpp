/* Tests in C++: plain programs, since cmocka leaves a failed test by longjmp, which skips destructors. A failed check
 * throws; the next case begins. */
#ifndef STRATA_TEST_CHECK_HPP
#define STRATA_TEST_CHECK_HPP

#include <strata/info.h>
#include <strata/status.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace test
{

/* Derives from nothing, so that no handler of the code under test takes it. */
struct failure {
    std::string text;
};

inline void require(bool good, const char *what, const char *file, int line)
{
    if (good)
        return;
    throw failure{std::string(file) + ":" + std::to_string(line) + ": " + what +
                  "\n    the last error: " + strata_last_error()->message};
}

inline void require_status(strata_status is, strata_status wanted, const char *what, const char *file, int line)
{
    if (is != wanted)
        require(false, (std::string(what) + " is " + strata_status_name(is)).c_str(), file, line);
}

#define CHECK(condition)           test::require(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define CHECK_STATUS(call, wanted) test::require_status((call), (wanted), #call, __FILE__, __LINE__)
#define CHECK_OK(call)             CHECK_STATUS(call, STRATA_SUCCESS)
#define CHECK_THROWS(expression, type)                                                   \
    do {                                                                                 \
        bool thrown = false;                                                             \
        try {                                                                            \
            expression;                                                                  \
        } catch (const type &) {                                                         \
            thrown = true;                                                               \
        }                                                                                \
        test::require(thrown, #expression " does not throw " #type, __FILE__, __LINE__); \
    } while (false)

struct test_case {
    const char *name;
    void (*run)();
};

#define CASE(name)  \
    {               \
#name, name \
    }

/* Runs one case; true if it passed. */
inline bool passes(const test_case &each)
{
    std::string why;
    try {
        each.run();
        std::printf("ok      %s\n", each.name);
        return true;
    } catch (const failure &failed) {
        why = failed.text;
    } catch (const std::exception &thrown) {
        why = std::string("it threw: ") + thrown.what();
    }
    std::printf("FAILED  %s\n  %s\n", each.name, why.c_str());
    return false;
}

/* The exit status of the program: 77 on a machine without a driver. */
template <std::size_t Count> int run(const test_case (&cases)[Count])
{
    strata_driver_info driver;
    if (strata_driver_get_info(&driver) != STRATA_SUCCESS) {
        std::printf("skipped: %s\n", strata_last_error()->message);
        return 77;
    }
    int failed = 0;
    for (const test_case &each : cases)
        failed += !passes(each);
    std::printf("%zu cases, %d failed\n", Count, failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

} // namespace test

#endif
