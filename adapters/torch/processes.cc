/* Memory that other processes see (torch.multiprocessing): a block's chunks are exported as file descriptors, and
 * mapped one behind the other by the receiver. PyTorch itself counts the receivers and orders their work. */
#include "processes.h"

#include "allocator.h"
#include "cuda_calls.h"

#include <c10/cuda/CUDAFunctions.h>
#include <unistd.h>

namespace strata_torch
{

static SharedParts parts_of(const strata_pool_hold *hold)
{
    size_t count = 0;
    const strata_pool_part *parts = strata_pool_hold_parts(hold, &count);
    SharedParts result{};
    result.offset = count ? parts[0].offset : 0;
    for (size_t i = 0; i < count; i++) {
        result.bytes.push_back(parts[i].handle_bytes);
        result.files.push_back(parts[i].fd);
    }
    return result;
}

static void close_files(const SharedParts &parts)
{
    for (int file : parts.files)
        close(file);
}

SharedMemory::SharedMemory(const Device &device, const strata_block &block) : address(block.address)
{
    const strata_status status = strata_pool_export(strata_stack_top(device.stack), &block, &hold_);
    TORCH_CHECK(status == STRATA_SUCCESS,
                "Strata: this memory cannot be shared with other processes; the stack needs pool(export=fd): ",
                strata_last_error()->message);
    try {
        number_ = offer_parts(parts_of(hold_));
    } catch (...) {
        close_files(parts_of(hold_));
        strata_pool_hold_end(hold_);
        throw;
    }
}

SharedMemory::~SharedMemory()
{
    withdraw_parts(number_);
    close_files(parts_of(hold_));
    strata_pool_hold_end(hold_);
}

std::string SharedMemory::handle() const
{
    return handle_of(number_);
}

/* ---- the sender ---- */

/* The program's block, or that of Strata's in which an inner address lies. */
static void *block_start(Device &device, BlockMap &blocks, void *address)
{
    strata_block found;
    if (blocks.with(address, [](Block *) {}))
        return address;
    const bool is_found =
        strata_runtime_find(device.runtime, reinterpret_cast<CUdeviceptr>(address), &found) == STRATA_SUCCESS;
    return is_found ? reinterpret_cast<void *>(found.address) : nullptr;
}

/* A private pool's block is a part of Strata's: that one is exported. */
static std::shared_ptr<SharedMemory> share(const Block &block)
{
    if (block.segment) {
        TORCH_CHECK(!block.segment->pool->allocator,
                    "Strata: memory of a MemPool with an allocator of its own cannot be shared with other processes");
        return std::make_shared<SharedMemory>(*block.device, block.segment->memory);
    }
    return std::make_shared<SharedMemory>(*block.device, block.memory);
}

ShareableHandle Allocator::shareIpcHandle(void *address)
{
    for (Device *device : used()) {
        void *start = block_start(*device, blocks_, address);
        ShareableHandle result{};
        const bool found = start && blocks_.with(start, [&](Block *block) {
            std::shared_ptr<SharedMemory> &shared = block->extra().shared;
            if (!shared)
                shared = share(*block);
            result.handle = shared->handle();
            result.offset = static_cast<ptrdiff_t>(reinterpret_cast<CUdeviceptr>(address)) -
                            static_cast<ptrdiff_t>(shared->address);
        });
        if (found)
            return result;
    }
    CUDAAllocator *former = former_.load(std::memory_order_acquire);
    TORCH_CHECK(former && former->initialized(), "invalid device pointer: ", address);
    return former->shareIpcHandle(address);
}

/* ---- the receiver ---- */

namespace
{

void check(CUresult result, const char *call)
{
    TORCH_CHECK(result == CUDA_SUCCESS, "Strata: memory of another process cannot be mapped: ", call, " answered ",
                static_cast<int>(result));
}

/* A range of addresses over the chunks of another process. */
class Mapping
{
  public:
    Mapping(const SharedParts &parts, DeviceIndex device);
    ~Mapping();
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    void *block() const
    {
        return reinterpret_cast<void *>(base_ + offset_);
    }

  private:
    void map(int file, uint64_t bytes);
    CUresult give_access(DeviceIndex device);
    void clear();

    CUdeviceptr base_ = 0;
    uint64_t offset_, reserved_ = 0, mapped_ = 0;
    std::vector<uint64_t> mappings_;
    const pid_t process_ = getpid();
};

void Mapping::map(int file, uint64_t bytes)
{
    CUmemGenericAllocationHandle chunk;
    check(driver_calls().MemImportFromShareableHandle(&chunk, reinterpret_cast<void *>(static_cast<uintptr_t>(file)),
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
    const CUresult result = driver_calls().MemMap(base_ + mapped_, bytes, 0, chunk, 0);
    driver_calls().MemRelease(chunk); /* the mapping keeps the memory */
    check(result, "cuMemMap");
    mapped_ += bytes;
    mappings_.push_back(bytes);
}

CUresult Mapping::give_access(DeviceIndex device)
{
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver_calls().MemSetAccess(base_, mapped_, &access, 1);
}

Mapping::Mapping(const SharedParts &parts, DeviceIndex device) : offset_(parts.offset)
{
    uint64_t bytes = 0;
    for (uint64_t part : parts.bytes)
        bytes += part;
    try {
        check(driver_calls().MemAddressReserve(&base_, bytes, 0, 0, 0), "cuMemAddressReserve");
        reserved_ = bytes;
        for (size_t i = 0; i < parts.bytes.size(); i++)
            map(parts.files[i], parts.bytes[i]);
        check(give_access(device), "cuMemSetAccess");
        for (DeviceIndex other = 0; other < c10::cuda::device_count(); other++)
            if (other != device)
                give_access(other); /* if it can: a tensor's copy to another device names no devices */
    } catch (...) {
        clear();
        throw;
    }
}

void Mapping::clear()
{
    CUdeviceptr at = base_;
    for (uint64_t bytes : mappings_) {
        driver_calls().MemUnmap(at, bytes);
        at += bytes;
    }
    if (reserved_)
        driver_calls().MemAddressFree(base_, reserved_);
}

/* PyTorch has waited for the work that uses the memory. A forked child has no mapping. */
Mapping::~Mapping()
{
    if (getpid() == process_)
        clear();
}

std::shared_ptr<void> map_handle(const std::string &handle)
{
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    TORCH_CHECK(driver_calls().MemImportFromShareableHandle && driver_calls().MemMap,
                "Strata: the driver cannot map memory of other processes");
    const SharedParts parts = fetch_parts(handle);
    std::shared_ptr<Mapping> mapping;
    try {
        mapping = std::make_shared<Mapping>(parts, device);
    } catch (...) {
        close_files(parts);
        throw;
    }
    close_files(parts);
    return {mapping, mapping->block()};
}

} // namespace

/* Equal handles share a mapping while one of them lives. */
std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle)
{
    if (!is_handle(handle)) {
        CUDAAllocator *former = former_.load(std::memory_order_acquire);
        TORCH_CHECK(former, "Strata: the memory was shared by a process that does not use Strata");
        return former->getIpcDevPtr(std::move(handle));
    }
    static auto *lock = new std::mutex;
    static auto *mapped = new std::map<std::string, std::weak_ptr<void>>;
    std::lock_guard<std::mutex> guard(*lock);
    for (auto at = mapped->begin(); at != mapped->end();)
        at = at->second.expired() ? mapped->erase(at) : std::next(at);
    if (std::shared_ptr<void> known = (*mapped)[handle].lock())
        return known;
    std::shared_ptr<void> made = map_handle(handle);
    (*mapped)[handle] = made;
    return made;
}

} // namespace strata_torch
