/* Questions about contexts: primary and created ones, and the stack of current ones. */
#include "ask.h"

#include <pthread.h>

static void ask_state(const char *moment)
{
    unsigned flags = 77;
    int active = 77;
    CUresult result = cu.DevicePrimaryCtxGetState(0, &flags, &active);
    ask_value(result, flags, "primary.state.%s.flags", moment);
    ask_value(result, active, "primary.state.%s.active", moment);
}

static void ask_primary_flags(void)
{
    static const unsigned flags[] = {0, 1, 2, 3, 4, 7, 8, 0x10, 0x20, 0x40, 0x80, 0x100, 0xffffffffU};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        ask(cu.DevicePrimaryCtxSetFlags(0, flags[i]), "primary.set_flags.inactive.%#x", flags[i]);
    ask(cu.DevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD), "primary.set_flags.yield");
    ask_state("yield_set");
    ask(cu.DevicePrimaryCtxSetFlags(0, 0), "primary.set_flags.auto");
    ask(cu.DevicePrimaryCtxSetFlags(99, 0), "primary.set_flags.device_99");
    ask(cu.DevicePrimaryCtxSetFlags(-1, 0), "primary.set_flags.device_minus_one");
}

void ask_primary_contexts(void)
{
    CUresult result;
    CUcontext first = NULL;
    CUcontext second = NULL;
    CUcontext third = NULL;
    CUcontext current = (CUcontext)&first;
    unsigned flags = 0;
    int active = 0;
    cu.Init(0);
    ask_state("before_retain");
    ask(cu.DevicePrimaryCtxRelease(0), "primary.release.before_retain");
    ask(cu.DevicePrimaryCtxReset(0), "primary.reset.before_retain");
    ask_primary_flags();
    ask(cu.DevicePrimaryCtxRetain(NULL, 0), "primary.retain.null");
    ask_state("retain_null");
    ask(cu.DevicePrimaryCtxRetain(&first, 99), "primary.retain.device_99");
    ask(cu.DevicePrimaryCtxRetain(&first, -1), "primary.retain.device_minus_one");
    ask(cu.DevicePrimaryCtxRetain(&first, 0), "primary.retain.first");
    ask(cu.DevicePrimaryCtxRetain(&second, 0), "primary.retain.second");
    ask_yes(first == second && first != NULL, "primary.retain.same_handle");
    result = cu.CtxGetCurrent(&current);
    ask_fact(result, current == NULL, "primary.retain.leaves_nothing_current");
    ask_state("retained_twice");
    ask(cu.DevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN), "primary.set_flags.active");
    ask_state("flags_set_active");
    ask(cu.DevicePrimaryCtxSetFlags(0, 0), "primary.set_flags.active_back");
    ask(cu.DevicePrimaryCtxGetState(0, NULL, &active), "primary.state.null_flags");
    ask(cu.DevicePrimaryCtxGetState(0, &flags, NULL), "primary.state.null_active");
    ask(cu.DevicePrimaryCtxGetState(99, &flags, &active), "primary.state.device_99");
    ask(cu.DevicePrimaryCtxRelease(0), "primary.release.second");
    ask_state("released_once");
    ask(cu.DevicePrimaryCtxRelease(0), "primary.release.last");
    ask_state("released_all");
    ask(cu.DevicePrimaryCtxRelease(0), "primary.release.once_too_often");
    ask(cu.DevicePrimaryCtxRelease(99), "primary.release.device_99");
    ask(cu.DevicePrimaryCtxRelease(-1), "primary.release.device_minus_one");
    ask(cu.DevicePrimaryCtxRetain(&third, 0), "primary.retain.after_release");
    ask_yes(third == first, "primary.retain.after_release.same_handle");
    ask_state("retained_again");
    ask(cu.CtxSetCurrent(third), "primary.retain.after_release.set_current");
    CUdeviceptr address = 0;
    ask(cu.MemAlloc(&address, 4096), "primary.retain.after_release.mem_alloc");
    ask(cu.DevicePrimaryCtxRelease(0), "primary.release.while_current");
    ask_state("released_while_current");
    current = NULL;
    result = cu.CtxGetCurrent(&current);
    ask_fact(result, current == third, "primary.release.while_current.still_current");
    ask(cu.MemAlloc(&address, 4096), "primary.release.while_current.mem_alloc");
    ask(cu.CtxSynchronize(), "primary.release.while_current.ctx_synchronize");
}

void ask_primary_reset(void)
{
    CUresult result;
    CUcontext context = start();
    CUcontext again = NULL;
    CUcontext current = NULL;
    CUdeviceptr address = new_memory(4096);
    ask(cu.DevicePrimaryCtxReset(99), "primary_reset.device_99");
    ask(cu.DevicePrimaryCtxReset(-1), "primary_reset.device_minus_one");
    ask(cu.DevicePrimaryCtxReset(0), "primary_reset.retained");
    unsigned flags = 77;
    int active = 77;
    result = cu.DevicePrimaryCtxGetState(0, &flags, &active);
    ask_value(result, active, "primary_reset.active_after");
    result = cu.CtxGetCurrent(&current);
    ask_fact(result, current == context, "primary_reset.still_current");
    ask(cu.CtxSynchronize(), "primary_reset.ctx_synchronize");
    ask(cu.MemAlloc(&address, 4096), "primary_reset.mem_alloc");
    CUstream stream = NULL;
    ask(cu.StreamCreate(&stream, 0), "primary_reset.stream_create");
    CUevent event = NULL;
    ask(cu.EventCreate(&event, 0), "primary_reset.event_create");
    ask(cu.DevicePrimaryCtxReset(0), "primary_reset.again");
    ask(cu.DevicePrimaryCtxRetain(&again, 0), "primary_reset.retain");
    ask_yes(again == context, "primary_reset.retain.same_handle");
    ask(cu.CtxSetCurrent(again), "primary_reset.retain.set_current");
    ask(cu.MemAlloc(&address, 4096), "primary_reset.retain.mem_alloc");
    ask(cu.DevicePrimaryCtxRelease(0), "primary_reset.release");
    result = cu.DevicePrimaryCtxGetState(0, &flags, &active);
    ask_value(result, active, "primary_reset.active_after_release");
    ask(cu.DevicePrimaryCtxRelease(0), "primary_reset.release.second");
    ask(cu.DevicePrimaryCtxRelease(0), "primary_reset.release.third");
}

static void ask_context_create(void)
{
    static const unsigned flags[] = {1, 2, 3, 4, 5, 7, 8, 0x10, 0x80, 0x100, 0xffffffffU};
    CUcontext context = NULL;
    ask(cu.CtxCreate(NULL, NULL, 0, 0), "context.create.null");
    ask(cu.CtxCreate(&context, NULL, 0, 99), "context.create.device_99");
    ask(cu.CtxCreate(&context, NULL, 0, -1), "context.create.device_minus_one");
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        unsigned got = 0;
        CUresult result = cu.CtxCreate(&context, NULL, flags[i], 0);
        ask(result, "context.create.flags_%#x", flags[i]);
        if (result != CUDA_SUCCESS)
            continue;
        result = cu.CtxGetFlags(&got);
        ask_value(result, got, "context.create.flags_%#x.get_flags", flags[i]);
        ask(cu.CtxDestroy(context), "context.create.flags_%#x.destroy", flags[i]);
    }
    CUctxCreateParams params = {0};
    CUresult result = cu.CtxCreate(&context, &params, 0, 0);
    ask(result, "context.create.empty_params");
    if (result == CUDA_SUCCESS)
        cu.CtxDestroy(context);
}

static void ask_current(CUcontext first, CUcontext second)
{
    CUresult result;
    CUcontext context = NULL;
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == second, "context.create.makes_current");
    ask(cu.CtxGetCurrent(NULL), "context.get_current.null");
    result = cu.CtxPopCurrent(&context);
    ask_fact(result, context == second, "context.pop.second");
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == first, "context.pop.second.uncovers_first");
    result = cu.CtxPopCurrent(&context);
    ask_fact(result, context == first, "context.pop.first");
    context = first;
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == NULL, "context.get_current.empty_is_null");
    context = first;
    ask(cu.CtxPopCurrent(&context), "context.pop.empty");
    ask_yes(context == first, "context.pop.empty.out_untouched");
    ask(cu.CtxPopCurrent(NULL), "context.pop.empty.null");
    ask(cu.CtxPushCurrent(NULL), "context.push.null");
    context = first;
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == NULL, "context.push.null.nothing_current");
    ask(cu.CtxPopCurrent(&context), "context.push.null.pop");
    ask(cu.CtxSetCurrent(NULL), "context.set_current.null_on_empty");
    ask(cu.CtxPopCurrent(&context), "context.set_current.null_on_empty.pop");
    ask(cu.CtxPushCurrent(first), "context.push.first");
    ask(cu.CtxPushCurrent(first), "context.push.first_again");
    ask(cu.CtxPushCurrent(second), "context.push.second");
    ask(cu.CtxSetCurrent(first), "context.set_current.replaces_top");
    ask(cu.CtxPopCurrent(NULL), "context.pop.null_out");
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == first, "context.set_current.replaces_top.below");
    ask(cu.CtxSetCurrent(NULL), "context.set_current.null");
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == first, "context.set_current.null.uncovers_below");
    ask(cu.CtxPopCurrent(&context), "context.set_current.null.pop_1");
    ask(cu.CtxPopCurrent(&context), "context.set_current.null.pop_2");
}

static void *ask_on_thread(void *data)
{
    CUresult result;
    CUcontext context = data;
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == NULL, "context.new_thread.nothing_current");
    CUdeviceptr address = 0;
    ask(cu.MemAlloc(&address, 4096), "context.new_thread.mem_alloc");
    return NULL;
}

static void ask_properties(CUcontext context)
{
    CUresult result;
    CUdevice device = -1;
    unsigned version = 0;
    unsigned flags = 77;
    unsigned long long id = 0;
    unsigned long long other = 0;
    result = cu.CtxGetDevice(&device);
    ask_value(result, device, "context.get_device");
    ask(cu.CtxGetDevice(NULL), "context.get_device.null");
    result = cu.CtxGetFlags(&flags);
    ask_value(result, flags, "context.get_flags");
    ask(cu.CtxGetFlags(NULL), "context.get_flags.null");
    result = cu.CtxGetApiVersion(context, &version);
    ask_value(result, version, "context.get_api_version");
    ask(cu.CtxGetApiVersion(context, NULL), "context.get_api_version.null");
    ask(cu.CtxGetId(context, &id), "context.get_id");
    result = cu.CtxGetId(NULL, &other);
    ask_fact(result, other == id, "context.get_id.null_is_current");
    ask(cu.CtxGetId(context, NULL), "context.get_id.null_out");
    ask(cu.CtxSynchronize(), "context.synchronize");
}

void ask_contexts(void)
{
    CUresult result;
    CUcontext primary = start();
    CUcontext first = NULL;
    CUcontext second = NULL;
    CUcontext context = NULL;
    cu.CtxSetCurrent(NULL);
    ask_context_create();
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == NULL, "context.destroy.current_is_popped");
    ask(cu.CtxCreate(&first, NULL, 0, 0), "context.create.first");
    ask_properties(first);
    ask(cu.CtxCreate(&second, NULL, 0, 0), "context.create.second");
    ask_yes(first != second && first != primary, "context.create.distinct");
    ask_current(first, second);
    pthread_t thread;
    cu.CtxSetCurrent(first);
    if (pthread_create(&thread, NULL, ask_on_thread, first) == 0)
        pthread_join(thread, NULL);
    ask(cu.CtxDestroy(second), "context.destroy.not_current");
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == first, "context.destroy.not_current.leaves_current");
    CUdeviceptr address = new_memory(4096);
    CUstream stream = new_stream(0);
    ask_yes(address != 0 && stream != NULL, "context.destroy.with_memory_and_stream.made");
    ask(cu.CtxDestroy(first), "context.destroy.with_memory_and_stream");
    result = cu.CtxGetCurrent(&context);
    ask_fact(result, context == NULL, "context.destroy.with_memory_and_stream.nothing_current");
    ask(cu.CtxSetCurrent(primary), "context.destroy.primary_lives");
    ask(cu.MemFree(address), "context.destroy.memory_is_gone");
    ask(cu.CtxDestroy(NULL), "context.destroy.null");
    ask(cu.CtxDestroy(primary), "context.destroy.primary");
}
