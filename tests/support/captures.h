/* Captures into graphs, which the library itself has no calls for: found in the driver that is open. */
#ifndef STRATA_TEST_CAPTURES_H
#define STRATA_TEST_CAPTURES_H

#include "support/driver.h"

#include <dlfcn.h>

static inline void *test_driver_call(const char *name)
{
    strata_driver_info info;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

static inline void test_begin_capture(CUstream stream)
{
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    *(void **)&begin = test_driver_call("cuStreamBeginCapture_v2");
    check_cu(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* Ends it, and returns how many nodes were put into the graph. */
static inline size_t test_end_capture(CUstream stream)
{
    CUresult (*end)(CUstream, CUgraph *);
    CUresult (*get_nodes)(CUgraph, CUgraphNode *, size_t *);
    CUresult (*destroy)(CUgraph);
    CUgraph graph = NULL;
    size_t nodes = 77;
    *(void **)&end = test_driver_call("cuStreamEndCapture");
    *(void **)&get_nodes = test_driver_call("cuGraphGetNodes");
    *(void **)&destroy = test_driver_call("cuGraphDestroy");
    check_cu(end(stream, &graph));
    check_cu(get_nodes(graph, NULL, &nodes));
    check_cu(destroy(graph));
    return nodes;
}

#endif
