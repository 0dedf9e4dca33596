/* An outside program of strata.hpp, in C++17: a block that its owner frees, and a failure that is caught. */
#include <strata/strata.hpp>

#include <cstdio>

int main()
{
    try {
        strata::runtime runtime("budget(limit=2MiB), async");
        strata::stream stream(runtime);
        const strata::block block = runtime.allocate(1 << 20, stream);
        const strata::block refused = runtime.allocate(2 << 20, stream);
    } catch (const strata::out_of_budget &) {
        return 0;
    } catch (const strata::error &failed) {
        std::fprintf(stderr, "%s\n", failed.what());
    }
    return 1;
}
