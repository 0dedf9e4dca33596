/* Memory that other processes see (torch.multiprocessing). */
#include "allocator.h"

namespace strata_torch
{

class SharedMemory
{
};

ShareableHandle Allocator::shareIpcHandle(void *)
{
    TORCH_CHECK(false, "todo");
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string)
{
    TORCH_CHECK(false, "todo");
}

} // namespace strata_torch
