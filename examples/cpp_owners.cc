/* Strata from C++: owners end what they own, failures are exceptions, launches order the streams.
 *
 * A writer and a reader share buffers without an event in the program. Rounds ask for ever larger buffers until the
 * budget refuses one: everything that the round had made is gone by then, and the program goes on with half of it.
 * Last, the work of a round is captured once and launched again as a graph. */
#include "cuda_calls.h"

#include <strata/strata.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace
{

cuda_calls cu;

void require(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    std::fprintf(stderr, "%s answered %d\n", call, static_cast<int>(result));
    std::exit(EXIT_FAILURE);
}

void fill(const strata::block &buffer, unsigned char value, const strata::stream &stream)
{
    require(cu.MemsetD8Async(buffer.address(), value, buffer.facts().requested, stream.get()), "cuMemsetD8Async");
}

/* Writes on one stream and reads on the other. The buffer is freed after both, whatever happens. */
unsigned char hand_over(strata::runtime_ref runtime, const strata::stream &writer, const strata::stream &reader,
                        std::size_t bytes, unsigned char value)
{
    const strata::block buffer = runtime.allocate(bytes, writer, {0, strata::tag_of("hand over")});
    std::vector<unsigned char> seen(bytes);
    strata::launch(runtime, writer).use(buffer, STRATA_ACCESS_WRITE).submit([&] { fill(buffer, value, writer); });
    strata::launch(runtime, reader).use(buffer, STRATA_ACCESS_READ).submit([&] {
        require(cu.MemcpyDtoHAsync(seen.data(), buffer.address(), bytes, reader.get()), "cuMemcpyDtoHAsync");
    });
    reader.synchronize();
    return seen.back();
}

/* The most bytes that the budget granted. */
std::size_t grow(strata::runtime_ref runtime, const strata::stream &writer, const strata::stream &reader)
{
    std::size_t granted = 0;
    try {
        for (std::size_t bytes = 1 << 20;; bytes *= 2) {
            if (hand_over(runtime, writer, reader, bytes, 42) != 42)
                std::exit(EXIT_FAILURE);
            granted = bytes;
        }
    } catch (const strata::out_of_budget &refused) { /* also a std::bad_alloc */
        std::printf("%zu bytes refused, limit %zu: %s\n", refused.record().requested, refused.record().limit,
                    refused.message());
    }
    return granted;
}

/* Launches the captured work `count` times; returns the graph's own count. */
std::uint64_t repeat(strata::runtime_ref runtime, const strata::stream &stream, std::size_t bytes, int count)
{
    const strata::block buffer = runtime.allocate(bytes, stream);
    strata::capture capture(runtime, stream);
    strata::launch(runtime, stream).use(buffer, STRATA_ACCESS_WRITE).submit([&] { fill(buffer, 1, stream); });
    const strata::graph graph = capture.end();
    for (int i = 0; i < count; i++)
        graph.launch(stream);
    return graph.replays();
}

} // namespace

int main()
{
    try {
        strata::runtime runtime("budget(limit=16MiB), statistics, pool");
        const strata::stream writer(runtime), reader(runtime);
        if (!cuda_open(&cu))
            return EXIT_FAILURE;
        const std::size_t granted = grow(runtime, writer, reader);
        const bool repeated = repeat(runtime, writer, granted / 2, 3) == 3;
        runtime.reap_pending();
        std::printf("%zu bytes granted, %zu bytes live at the end\n", granted, runtime.usage().live_bytes);
        return repeated && granted && runtime.usage().live_bytes == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const strata::error &failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return EXIT_FAILURE;
    }
}
