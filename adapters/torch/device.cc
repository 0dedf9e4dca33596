#include "device.h"

#include <strata/control.h>
#include <strata/info.h>

namespace strata_torch
{

namespace
{

/* A pool that other devices may access, and other processes, if the device can export its memory. */
std::string default_text(c10::DeviceIndex ordinal)
{
    strata_device_info device;
    const bool exports = strata_device_get_info(ordinal, &device) == STRATA_SUCCESS && device.mapped_fd_handles;
    return exports ? "pool(export=fd, peers=all)" : "pool(peers=all)";
}

/* "8 GiB" has a blank, with which a value in a stack's text stands in quotes. */
std::string budget_text(const std::string &budget)
{
    const char *quote = budget.find(' ') == std::string::npos ? "" : "\"";
    return budget.empty() ? "" : "budget(limit=" + std::string(quote) + budget + quote + "), ";
}

strata_runtime *create_runtime(c10::DeviceIndex ordinal, const std::string &text, const std::string &budget)
{
    const std::string stack_text = budget_text(budget) + (text.empty() ? default_text(ordinal) : text);
    strata_runtime_config config{};
    config.size = sizeof config;
    config.device = ordinal;
    config.stack_text = stack_text.c_str();
    strata_runtime *runtime = nullptr;
    const strata_status status = strata_runtime_create(&config, &runtime);
    TORCH_CHECK(status == STRATA_SUCCESS, "Strata: no stack \"", stack_text, "\" for device ", int{ordinal}, ": ",
                strata_last_error()->message);
    return runtime;
}

size_t total_bytes_of(c10::DeviceIndex ordinal)
{
    strata_device_info info;
    TORCH_CHECK(strata_device_get_info(ordinal, &info) == STRATA_SUCCESS, "Strata: ", strata_last_error()->message);
    return info.total_bytes;
}

} // namespace

Device::Device(c10::DeviceIndex number, const std::string &stack_text, const std::string &budget)
    : ordinal(number), runtime(create_runtime(number, stack_text, budget)), stack(strata_runtime_stack(runtime)),
      pooled(strata_stack_layer(stack, "pool", 0) != nullptr),
      branches(strata_stack_layer(stack, "fallback", 0) != nullptr), total_bytes(total_bytes_of(number)), first_limit(0)
{
    if (pooled)
        first_limit = static_cast<size_t>(value("pool.limit"));
    stats.max_split_size = -1; /* unlimited */
}

uint64_t Device::value(const char *name) const
{
    uint64_t result = 0;
    strata_control(stack, name, &result, nullptr);
    return result;
}

bool Device::set_value(const char *name, uint64_t value) const
{
    return strata_control(stack, name, nullptr, &value) == STRATA_SUCCESS;
}

} // namespace strata_torch
