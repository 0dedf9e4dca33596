/* Objects that end with the process, in every order: before and after the runtime, and after the driver has shut down.
 * The program must end with status 0. */
#include <strata/strata.hpp>

#include "check.hpp"

#include <cstdio>
#include <optional>

namespace
{

constexpr std::size_t BYTES = 4096;

/* Made before anything opens the driver, and so destroyed when it has shut down. */
struct late {
    std::optional<strata::block> block, of_default;
    std::optional<strata::stream> stream;
    std::optional<strata::reference> reference;
    std::optional<strata::runtime> runtime;
};

late &last()
{
    static late kept;
    return kept;
}

void fill(late &kept)
{
    kept.runtime.emplace("budget(limit=1MiB), statistics, pool");
    kept.stream.emplace(*kept.runtime);
    kept.block.emplace(kept.runtime->allocate(BYTES, *kept.stream));
    kept.reference.emplace(strata::reference::of<float>(*kept.runtime, 16, *kept.stream));
    kept.of_default.emplace(strata::runtime_ref::of_device(0).allocate(BYTES, strata::on(nullptr)));
}

} // namespace

int main()
{
    (void)last();
    strata_driver_info driver;
    if (strata_driver_get_info(&driver) != STRATA_SUCCESS) {
        std::printf("skipped: %s\n", strata_last_error()->message);
        return 77;
    }
    static late while_open; /* destroyed before the driver shuts down */
    try {
        fill(last());
        fill(while_open);
        /* Another order than the members': the runtime first, while all else lives. */
        static late reversed;
        fill(reversed);
        CHECK_STATUS(reversed.runtime->reset(), STRATA_ERROR_BUSY);
    } catch (const strata::error &failed) {
        std::printf("%s\n", failed.what());
        return 1;
    } catch (const test::failure &failed) {
        std::printf("%s\n", failed.text.c_str());
        return 1;
    }
    return 0;
}
