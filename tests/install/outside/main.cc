/* An outside program in C++: as main.c, with a block that is freed by its destructor. */
#include <cstdio>
#include <cstring>
#include <strata/dlpack_types.h>
#include <strata/strata.h>

static_assert(sizeof(DLManagedTensorVersioned) == 80 && sizeof(ArrowDeviceArray) == 128, "layouts of the standards");

namespace
{

class Block
{
  public:
    Block(strata_runtime *runtime, size_t bytes) : runtime_(runtime)
    {
        status_ = strata_runtime_allocate(runtime_, bytes, nullptr, &block_);
    }

    ~Block()
    {
        give_back();
    }

    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    bool good(size_t bytes) const
    {
        return status_ == STRATA_SUCCESS && block_.address != 0 && block_.bytes >= bytes;
    }

    bool give_back()
    {
        strata_runtime *runtime = runtime_;
        runtime_ = nullptr;
        return runtime == nullptr || status_ != STRATA_SUCCESS ||
               strata_runtime_deallocate_on(runtime, &block_, nullptr) == STRATA_SUCCESS;
    }

  private:
    strata_runtime *runtime_;
    strata_block block_{};
    strata_status status_;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2 || std::strcmp(argv[1], strata_version_string()) != 0) {
        std::fprintf(stderr, "the library says that it is version %s\n", strata_version_string());
        return 1;
    }
    strata_runtime *runtime = nullptr;
    if (strata_runtime_get(0, &runtime) == STRATA_SUCCESS) {
        Block block(runtime, 1 << 20);
        if (block.good(1 << 20) && block.give_back())
            return 0;
    }
    std::fprintf(stderr, "%s\n", strata_last_error()->message);
    return 1;
}
