/* Handing blocks from stream to stream: what one stream wrote, the next one reads. */
#include "support/fixture.h"

enum { BYTES = 4096 };

static void a_reader_waits_for_the_writer(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, writer);
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &block, 0xa1, writer);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0xa1, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, writer);
}

int main(void)
{
    static const test_case cases[] = {TEST_CASE(a_reader_waits_for_the_writer)};
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
