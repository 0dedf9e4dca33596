/* A block that other processes have mapped, and the thread that hands its file descriptors to them. */
#ifndef STRATA_ADAPTERS_TORCH_PROCESSES_H
#define STRATA_ADAPTERS_TORCH_PROCESSES_H

#include "device.h"

#include <strata/pool.h>

namespace strata_torch
{

/* What an importer maps one behind the other; the block begins at `offset` of the first part. */
struct SharedParts {
    uint64_t offset;
    std::vector<uint64_t> bytes;
    std::vector<int> files; /* the owner closes them */
};

/* Lives as long as the block that it belongs to: the chunks stay where they are, and the descriptors open. */
class SharedMemory
{
  public:
    /* Throws c10::Error. */
    SharedMemory(const Device &device, const strata_block &block);
    ~SharedMemory();
    SharedMemory(const SharedMemory &) = delete;
    SharedMemory &operator=(const SharedMemory &) = delete;

    const CUdeviceptr address;
    /* Throws c10::Error. */
    std::string handle() const;

  private:
    strata_pool_hold *hold_ = nullptr;
    uint64_t number_ = 0;
};

/* Asks the process that made the handle for the parts. The caller closes the descriptors. Throws c10::Error. */
SharedParts fetch_parts(const std::string &handle);

/* Whether the handle is one of Strata's. */
bool is_handle(const std::string &handle);

/* Gives the descriptors of `parts` to processes of this user that name a handle of the number, until they are
 * withdrawn. The caller keeps the descriptors. Handles are good as long as the program leaves the socket open. The
 * first two start the thread if need be, and throw c10::Error. */
uint64_t offer_parts(const SharedParts &parts);
std::string handle_of(uint64_t number);
void withdraw_parts(uint64_t number);

} // namespace strata_torch

#endif
