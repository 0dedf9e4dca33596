/* What an allocation and its free cost through PyTorch's class, beside Strata's own pair on the same stack, and beside
 * PyTorch's own allocator:
 *
 *     pair_cost SHIM STACK     prints nanoseconds of processor time, medians of nine
 *
 * tests/torch/run-pair-cost builds and runs it on the simulated driver. */
#include <algorithm>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <strata/runtime.h>

/* Of the thread: other programs may use the machine. */
static double now()
{
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

template <typename Pair> static double median_of(Pair pair)
{
    constexpr int rounds = 9, pairs = 100000;
    double times[rounds];
    for (double &time : times) {
        const double start = now();
        for (int i = 0; i < pairs; i++)
            pair();
        time = (now() - start) / pairs;
    }
    std::sort(times, times + rounds);
    return times[rounds / 2];
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    void *shim = dlopen(words[1], RTLD_NOW);
    if (!shim) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    char error[500] = "";
    const auto install =
        reinterpret_cast<int (*)(const char *, const char *, int, char *, size_t)>(dlsym(shim, "strata_torch_install"));
    const auto runtime_of = reinterpret_cast<void *(*)(int, char *, size_t)>(dlsym(shim, "strata_torch_runtime"));
    c10::cuda::CUDACachingAllocator::init(1);
    auto *native = c10::cuda::CUDACachingAllocator::get();
    if (install(words[2], "", 1, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    auto *runtime = static_cast<strata_runtime *>(runtime_of(0, error, sizeof error));
    if (!runtime) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    for (const size_t bytes : {size_t{4096}, size_t{3} << 20}) {
        const double own = median_of([&] {
            strata_block block;
            if (strata_runtime_allocate(runtime, bytes, nullptr, &block) != STRATA_SUCCESS ||
                strata_runtime_deallocate_on(runtime, &block, nullptr) != STRATA_SUCCESS)
                abort();
        });
        const double through = median_of([&] { c10::DataPtr pointer = allocator->allocate(bytes); });
        const double before = median_of([&] { c10::DataPtr pointer = native->allocate(bytes); });
        printf("%8zu bytes: Strata's pair %.0f ns, through PyTorch's class %.0f ns; PyTorch's own allocator %.0f ns\n",
               bytes, own, through, before);
    }
    return 0;
}
