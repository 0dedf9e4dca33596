/* Captures into graphs, for which the library has no calls: they are looked up in the open driver. */
#ifndef STRATA_TEST_CAPTURES_H
#define STRATA_TEST_CAPTURES_H

#include "support/driver.h"

#include <dlfcn.h>
#include <string.h>

static inline void test_find_driver_call(const char *name, int version, void *call)
{
    strata_driver_info info;
    CUdriverProcAddressQueryResult found;
    PFN_cuGetProcAddress_v12000 get;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    assert_non_null(symbol);
    memcpy(&get, &symbol, sizeof get);
    check_cu(get(name, &symbol, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found));
    assert_non_null(symbol);
    memcpy(call, &symbol, sizeof symbol);
}

static inline void test_begin_capture(CUstream stream)
{
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    test_find_driver_call("cuStreamBeginCapture", 10010, &begin);
    check_cu(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* Ends the capture, and returns the number of nodes in its graph. */
static inline size_t test_end_capture(CUstream stream)
{
    CUresult (*end)(CUstream, CUgraph *);
    CUresult (*get_nodes)(CUgraph, CUgraphNode *, size_t *);
    CUresult (*destroy)(CUgraph);
    CUgraph graph = NULL;
    size_t nodes = 77;
    test_find_driver_call("cuStreamEndCapture", 10000, &end);
    test_find_driver_call("cuGraphGetNodes", 10000, &get_nodes);
    test_find_driver_call("cuGraphDestroy", 10000, &destroy);
    check_cu(end(stream, &graph));
    check_cu(get_nodes(graph, NULL, &nodes));
    check_cu(destroy(graph));
    return nodes;
}

#endif
