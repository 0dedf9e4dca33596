/* Modules of the kinds that CUDA's compiler makes beside PTX: cubins and fatbins, in both forms of the service. Needs a
 * GPU and nvcc; the simulated driver loads PTX alone. */
#include "support/service.h"

#include <stdio.h>

static char folder[] = "/tmp/strata-images-XXXXXX";

/* What nvcc makes of the PTX, for the service's device. */
static size_t compile(strata_service *service, const char *kind, char **image)
{
    char command[512], path[128];
    strata_service_stats now;
    check_ok(strata_service_get_stats(service, &now));
    snprintf(path, sizeof path, "%s/image", folder);
    snprintf(command, sizeof command, "PATH=$PATH:/usr/local/cuda/bin nvcc --%s -arch=sm_%u%u -o %s %s/kernel.ptx",
             kind, now.compute_major, now.compute_minor, path, folder);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t bytes = (size_t)ftell(file);
    rewind(file);
    *image = malloc(bytes);
    assert_non_null(*image);
    assert_int_equal(fread(*image, 1, bytes, file), bytes);
    fclose(file);
    return bytes;
}

/* The bytes that the module's kernel writes. */
static strata_host_buffer *filled_by(strata_service *service, uint64_t module)
{
    strata_ref *ref = test_service_allocate(service, 4096);
    strata_host_buffer *bytes = test_buffer(4096, 0);
    const strata_argument arguments[] = {{.kind = STRATA_ARGUMENT_WRITE, .ref = ref}, test_value(4096), test_value(5)};
    const strata_kernel kernel = {
        .module = module, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    check_ok(strata_service_launch(service, &kernel, NULL, NULL));
    check_ok(test_copy(service, ref, bytes, true));
    check_ok(strata_ref_release(ref));
    return bytes;
}

static void check_images(strata_service_form form)
{
    static const char *const kinds[] = {"cubin", "fatbin"};
    strata_service *service = test_service_make(&(strata_service_options){.form = form});
    strata_host_buffer *expected = filled_by(service, test_load_fill(service));
    assert_false(test_buffer_has(expected, 0));
    for (size_t i = 0; i < 2; i++) {
        char *image;
        strata_future *future;
        const size_t bytes = compile(service, kinds[i], &image);
        check_ok(strata_service_load(service, image, bytes, NULL, &future));
        free(image);
        const strata_answer answer = test_take(future);
        assert_int_equal(answer.status, STRATA_SUCCESS);
        strata_host_buffer *found = filled_by(service, answer.module);
        assert_memory_equal(strata_host_buffer_memory(expected), strata_host_buffer_memory(found), 4096);
        strata_host_buffer_release(found);
    }
    strata_host_buffer_release(expected);
    check_ok(strata_service_destroy(service));
}

static void cubins_and_fatbins_are_loaded_as_ptx_is(void **state)
{
    (void)state;
    check_images(STRATA_SERVICE_IN_PROCESS);
}

static void cubins_and_fatbins_are_loaded_by_a_worker(void **state)
{
    (void)state;
    check_images(STRATA_SERVICE_ISOLATED);
}

static int write_ptx(void **state)
{
    (void)state;
    char path[128];
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/kernel.ptx", folder);
    FILE *file = fopen(path, "w");
    const bool written = file && fputs(test_fill_ptx, file) >= 0;
    return (file && fclose(file)) || !written ? -1 : 0;
}

static int remove_files(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    test_open_driver();
    if (test_on_simulated_driver() || system("PATH=$PATH:/usr/local/cuda/bin nvcc --version > /dev/null 2>&1")) {
        puts("skipped: needs a GPU and nvcc");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cubins_and_fatbins_are_loaded_as_ptx_is),
        cmocka_unit_test(cubins_and_fatbins_are_loaded_by_a_worker),
    };
    return cmocka_run_group_tests(tests, write_ptx, remove_files);
}
