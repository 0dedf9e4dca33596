/* Questions about initialisation: calls before cuInit, cuInit itself, versions, entry points, error names. */
#include "ask.h"

#include <string.h>

static void before_init_devices(void)
{
    int number = 0;
    CUdevice device = 0;
    char name[64];
    size_t bytes = 0;
    unsigned flags = 0;
    CUcontext context = NULL;
    CUmemoryPool pool = NULL;
    CUuuid uuid;
    ask(cu.DeviceGetCount(&number), "before_init.device_get_count");
    ask(cu.DeviceGetCount(NULL), "before_init.device_get_count.null");
    ask(cu.DeviceGet(&device, 0), "before_init.device_get");
    ask(cu.DeviceGetName(name, sizeof name, 0), "before_init.device_get_name");
    ask(cu.DeviceGetUuid(&uuid, 0), "before_init.device_get_uuid");
    ask(cu.DeviceTotalMem(&bytes, 0), "before_init.device_total_mem");
    ask(cu.DeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), "before_init.device_get_attribute");
    ask(cu.DeviceGetPCIBusId(name, sizeof name, 0), "before_init.device_get_pci_bus_id");
    ask(cu.DeviceGetDefaultMemPool(&pool, 0), "before_init.device_get_default_mem_pool");
    ask(cu.DeviceGetMemPool(&pool, 0), "before_init.device_get_mem_pool");
    ask(cu.DeviceSetMemPool(0, NULL), "before_init.device_set_mem_pool");
    ask(cu.DevicePrimaryCtxRetain(&context, 0), "before_init.primary_ctx_retain");
    ask(cu.DevicePrimaryCtxRelease(0), "before_init.primary_ctx_release");
    ask(cu.DevicePrimaryCtxReset(0), "before_init.primary_ctx_reset");
    ask(cu.DevicePrimaryCtxGetState(0, &flags, &number), "before_init.primary_ctx_get_state");
    ask(cu.DevicePrimaryCtxSetFlags(0, 0), "before_init.primary_ctx_set_flags");
    ask(cu.CtxCreate(&context, NULL, 0, 0), "before_init.ctx_create");
    ask(cu.CtxDestroy(NULL), "before_init.ctx_destroy");
    ask(cu.CtxGetCurrent(&context), "before_init.ctx_get_current");
    ask(cu.CtxSetCurrent(NULL), "before_init.ctx_set_current");
    ask(cu.CtxPushCurrent(NULL), "before_init.ctx_push_current");
    ask(cu.CtxPopCurrent(&context), "before_init.ctx_pop_current");
    ask(cu.CtxGetDevice(&device), "before_init.ctx_get_device");
    ask(cu.CtxSynchronize(), "before_init.ctx_synchronize");
}

static void before_init_streams(void)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    CUcontext context = NULL;
    unsigned long long id = 0;
    CUstreamCaptureStatus status;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ask(cu.StreamCreate(&stream, 0), "before_init.stream_create");
    ask(cu.StreamDestroy(NULL), "before_init.stream_destroy");
    ask(cu.StreamQuery(NULL), "before_init.stream_query");
    ask(cu.StreamSynchronize(NULL), "before_init.stream_synchronize");
    ask(cu.StreamWaitEvent(NULL, NULL, 0), "before_init.stream_wait_event");
    ask(cu.StreamGetId(NULL, &id), "before_init.stream_get_id");
    ask(cu.StreamGetCtx(NULL, &context), "before_init.stream_get_ctx");
    ask(cu.StreamIsCapturing(NULL, &status), "before_init.stream_is_capturing");
    ask(cu.ThreadExchangeStreamCaptureMode(&mode), "before_init.thread_exchange_stream_capture_mode");
    ask(cu.EventCreate(&event, 0), "before_init.event_create");
    ask(cu.EventDestroy(NULL), "before_init.event_destroy");
    ask(cu.EventRecord(NULL, NULL), "before_init.event_record");
    ask(cu.EventQuery(NULL), "before_init.event_query");
    ask(cu.EventSynchronize(NULL), "before_init.event_synchronize");
}

static void before_init_memory(void)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    size_t total = 0;
    void *host = NULL;
    char byte = 0;
    int number = 0;
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = pool_properties();
    CUmodule module = NULL;
    CUfunction function = NULL;
    ask(cu.MemGetInfo(&bytes, &total), "before_init.mem_get_info");
    ask(cu.MemAlloc(&address, 4096), "before_init.mem_alloc");
    ask(cu.MemFree(0), "before_init.mem_free");
    ask(cu.MemGetAddressRange(&address, &bytes, 0), "before_init.mem_get_address_range");
    ask(cu.MemHostAlloc(&host, 4096, 0), "before_init.mem_host_alloc");
    ask(cu.MemFreeHost(NULL), "before_init.mem_free_host");
    ask(cu.PointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096), "before_init.pointer_get_attribute");
    ask(cu.MemAllocAsync(&address, 4096, NULL), "before_init.mem_alloc_async");
    ask(cu.MemAllocFromPoolAsync(&address, 4096, NULL, NULL), "before_init.mem_alloc_from_pool_async");
    ask(cu.MemFreeAsync(0, NULL), "before_init.mem_free_async");
    ask(cu.MemPoolCreate(&pool, &properties), "before_init.mem_pool_create");
    ask(cu.MemPoolDestroy(NULL), "before_init.mem_pool_destroy");
    ask(cu.MemPoolTrimTo(NULL, 0), "before_init.mem_pool_trim_to");
    ask(cu.MemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), "before_init.mem_pool_get_attribute");
    ask(cu.MemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), "before_init.mem_pool_set_attribute");
    ask(cu.MemcpyHtoD(0, &byte, 1), "before_init.memcpy_htod");
    ask(cu.MemcpyDtoH(&byte, 0, 1), "before_init.memcpy_dtoh");
    ask(cu.MemcpyDtoDAsync(0, 0, 1, NULL), "before_init.memcpy_dtod_async");
    ask(cu.MemsetD8(0, 0, 1), "before_init.memset_d8");
    ask(cu.MemsetD8Async(0, 0, 1, NULL), "before_init.memset_d8_async");
    ask(cu.ModuleLoadData(&module, pattern_module), "before_init.module_load_data");
    ask(cu.ModuleUnload(NULL), "before_init.module_unload");
    ask(cu.ModuleGetFunction(&function, NULL, "x"), "before_init.module_get_function");
    ask(cu.LaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "before_init.launch_kernel");
    ask(cu.LaunchHostFunc(NULL, NULL, NULL), "before_init.launch_host_func");
}

void ask_before_init(void)
{
    int version = 0;
    const char *text = NULL;
    void *address = NULL;
    CUdriverProcAddressQueryResult found;
    ask(cu.DriverGetVersion(&version), "before_init.driver_get_version");
    ask(cu.DriverGetVersion(NULL), "before_init.driver_get_version.null");
    ask(cu.GetErrorName(CUDA_ERROR_INVALID_VALUE, &text), "before_init.get_error_name");
    ask(cu.GetErrorString(CUDA_ERROR_INVALID_VALUE, &text), "before_init.get_error_string");
    ask(cu.GetProcAddress("cuMemAlloc", &address, 13000, 0, &found), "before_init.get_proc_address");
    before_init_devices();
    before_init_streams();
    before_init_memory();
    ask(cu.Init(1), "before_init.init.flags_1");
    ask(cu.Init(0xffffffffU), "before_init.init.flags_all");
    int count = 0;
    ask(cu.DeviceGetCount(&count), "before_init.device_get_count.after_refused_init");
}

static void search(const char *question, const char *name, int version, cuuint64_t flags)
{
    void *address = &address;
    CUdriverProcAddressQueryResult found = (CUdriverProcAddressQueryResult)77;
    CUresult result = cu.GetProcAddress(name, &address, version, flags, &found);
    ask(result, "get_proc_address.%s", question);
    ask_number(found, "get_proc_address.%s.query_result", question);
    ask_text(address == NULL       ? "null"
             : address == &address ? "untouched"
                                   : "set",
             "get_proc_address.%s.address", question);
}

static void *found_address(const char *name, int version, cuuint64_t flags)
{
    void *address = NULL;
    CUdriverProcAddressQueryResult found;
    cu.GetProcAddress(name, &address, version, flags, &found);
    return address;
}

static void ask_proc_address(void)
{
    void *address = NULL;
    search("known", "cuMemAlloc", 13000, 0);
    search("exact_version", "cuMemAlloc", 3020, 0);
    search("unknown_name", "cuNoSuchEntryPoint", 13000, 0);
    search("unknown_prefix", "noSuchEntryPoint", 13000, 0);
    search("empty_name", "", 13000, 0);
    search("suffixed_name", "cuMemAlloc_v2", 13000, 0);
    search("version_too_old", "cuMemAllocAsync", 11010, 0);
    search("version_zero", "cuMemAllocAsync", 0, 0);
    search("version_negative", "cuMemAllocAsync", -1, 0);
    search("version_of_the_future", "cuMemAllocAsync", 99000, 0);
    search("flags_legacy", "cuMemAllocAsync", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    search("flags_per_thread", "cuMemAllocAsync", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    search("flags_both", "cuMemAllocAsync", 13000, 3);
    search("flags_unknown", "cuMemAllocAsync", 13000, 4);
    search("flags_per_thread_without_stream", "cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    ask(cu.GetProcAddress("cuMemAlloc", &address, 13000, 0, NULL), "get_proc_address.null_query_result");
    ask(cu.GetProcAddress("cuNoSuchEntryPoint", &address, 13000, 0, NULL),
        "get_proc_address.unknown_name.null_query_result");
    ask_yes(found_address("cuMemAllocAsync", 13000, 0) == found_address("cuMemAllocAsync", 13000, 1),
            "get_proc_address.default_is_legacy");
    ask_yes(found_address("cuMemAllocAsync", 13000, 2) != found_address("cuMemAllocAsync", 13000, 1),
            "get_proc_address.per_thread_is_another_function");
    ask_yes(found_address("cuMemAlloc", 2000, 0) != found_address("cuMemAlloc", 3020, 0),
            "get_proc_address.old_abi_is_another_function");
    ask_yes(found_address("cuCtxCreate", 12050, 0) != found_address("cuCtxCreate", 11040, 0),
            "get_proc_address.ctx_create_has_versions");
}

void ask_init(void)
{
    int version = 0;
    ask(cu.Init(0), "init.first");
    ask(cu.Init(0), "init.again");
    ask(cu.Init(1), "init.again.flags_1");
    ask(cu.DriverGetVersion(&version), "init.driver_get_version");
    ask_yes(version >= 13000, "init.driver_get_version.at_least_13000");
    ask(cu.DriverGetVersion(NULL), "init.driver_get_version.null");
    ask_proc_address();
}

static void ask_error_name(CUresult code, const char *name)
{
    const char *text = NULL;
    CUresult result = cu.GetErrorName(code, &text);
    ask_text(result != CUDA_SUCCESS || text == NULL ? result_name(result) : text, "error_name.%d", (int)code);
    ask_yes(result == CUDA_SUCCESS && text != NULL && strcmp(text, name) == 0, "error_name.%d.as_in_header", (int)code);
    text = NULL;
    result = cu.GetErrorString(code, &text);
    ask_text(result != CUDA_SUCCESS || text == NULL ? result_name(result) : text, "error_string.%d", (int)code);
}

void ask_error_names(void)
{
    const char *text = "untouched";
    result_visit(ask_error_name);
    static const int wrong[] = {-1, 9, 99, 203, 226 + 1, 401 + 50, 501, 998, 1000, 123456};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        text = "untouched";
        ask(cu.GetErrorName((CUresult)wrong[i], &text), "error_name.unknown_code_%d", wrong[i]);
        ask_text(text == NULL ? "null" : text, "error_name.unknown_code_%d.text", wrong[i]);
        text = "untouched";
        ask(cu.GetErrorString((CUresult)wrong[i], &text), "error_string.unknown_code_%d", wrong[i]);
        ask_text(text == NULL ? "null" : text, "error_string.unknown_code_%d.text", wrong[i]);
    }
}
