/* Modules of the kinds that CUDA's compiler makes beside PTX: cubins and fatbins, in both forms of the service. The
 * simulated driver runs the PTX of a fatbin, and no cubin: what nvcc makes needs a GPU. */
#include "support/service.h"

#include <elf.h>
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

static strata_service *make(strata_service_form form)
{
    return test_service_make(&(strata_service_options){.form = form});
}

/* Loads an image, whose kernel writes what the one of the PTX writes. */
static void check_module(strata_service *service, const void *image, size_t bytes)
{
    strata_future *future;
    strata_host_buffer *expected = filled_by(service, test_load_fill(service));
    assert_false(test_buffer_has(expected, 0));
    check_ok(strata_service_load(service, image, bytes, NULL, &future));
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    strata_host_buffer *found = filled_by(service, answer.module);
    assert_memory_equal(strata_host_buffer_memory(expected), strata_host_buffer_memory(found), 4096);
    strata_host_buffer_release(found);
    strata_host_buffer_release(expected);
}

static void check_images(strata_service_form form)
{
    static const char *const kinds[] = {"cubin", "fatbin"};
    if (test_on_simulated_driver() || system("PATH=$PATH:/usr/local/cuda/bin nvcc --version > /dev/null 2>&1"))
        skip();
    strata_service *service = make(form);
    for (size_t i = 0; i < 2; i++) {
        char *image;
        const size_t bytes = compile(service, kinds[i], &image);
        check_module(service, image, bytes);
        free(image);
    }
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

/* ---- images that are made here ---- */

/* As CUDA 13's fatbinary writes them: a head, and before each image an entry. */
enum { HEAD_BYTES = 16, ENTRY_BYTES = 80, KIND_PTX = 1, KIND_CUBIN = 2, ZSTD = 0x8000, IMAGE_ROOM = 65536 };

typedef struct made_image {
    unsigned char bytes[IMAGE_ROOM];
    size_t count;
} made_image;

static void put(made_image *image, size_t at, uint64_t value, size_t width)
{
    memcpy(image->bytes + at, &value, width);
}

static void begin_fatbin(made_image *image)
{
    memset(image, 0, sizeof *image);
    put(image, 0, 0xba55ed50, 4);
    put(image, 4, 1, 2);
    put(image, 6, HEAD_BYTES, 2);
    image->count = HEAD_BYTES;
}

static void add_entry(made_image *image, unsigned kind, unsigned architecture, uint64_t flags, const void *content,
                      size_t bytes)
{
    const size_t at = image->count, padded = (bytes + 7) / 8 * 8;
    assert_true(at + ENTRY_BYTES + padded <= IMAGE_ROOM);
    put(image, at, kind, 2);
    put(image, at + 2, 0x0101, 2);
    put(image, at + 4, ENTRY_BYTES, 4);
    put(image, at + 8, padded, 8);
    put(image, at + 20, 64, 4);
    put(image, at + 24, 0x60000, 4); /* PTX 6.0 */
    put(image, at + 28, architecture, 4);
    put(image, at + 40, 0x11 | flags, 8);
    put(image, at + 64, 72, 8);
    memcpy(image->bytes + at + ENTRY_BYTES, content, bytes);
    image->count = at + ENTRY_BYTES + padded;
    put(image, 8, image->count - HEAD_BYTES, 8);
}

static void add_ptx(made_image *image, unsigned architecture, const char *text)
{
    add_entry(image, KIND_PTX, architecture, 0, text, strlen(text) + 1);
}

/* A head alone; the first ABI of cubins has the architecture in the lowest byte of the flags, the second in the next.
 */
static Elf64_Ehdr cubin_for(unsigned architecture, unsigned abi)
{
    return (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, abi == 7 ? 0x33 : 0x41,
                                    (unsigned char)abi},
                        .e_type = ET_EXEC,
                        .e_machine = 190,
                        .e_version = 1,
                        .e_flags =
                            abi == 7 ? architecture << 16 | 0x500 | architecture : 0x06000002 | architecture << 8,
                        .e_ehsize = sizeof(Elf64_Ehdr)};
}

static void in_both_forms(void (*check)(strata_service *service))
{
    strata_service *service = make(STRATA_SERVICE_IN_PROCESS);
    check(service);
    check_ok(strata_service_destroy(service));
    service = make(STRATA_SERVICE_ISOLATED);
    check(service);
    check_ok(strata_service_destroy(service));
}

static made_image image;

static void load_ptx_of_fatbins(strata_service *service)
{
    begin_fatbin(&image);
    add_ptx(&image, 52, test_fill_ptx);
    check_module(service, image.bytes, image.count);
    begin_fatbin(&image); /* not the first, and not the newest */
    const Elf64_Ehdr cubin = cubin_for(70, 7);
    add_entry(&image, KIND_CUBIN, 70, 0, &cubin, sizeof cubin);
    add_ptx(&image, 50, ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry other()\n{\nret;\n}\n");
    add_ptx(&image, 52, test_fill_ptx);
    add_ptx(&image, 250, "of a device to come");
    check_module(service, image.bytes, image.count);
}

static void the_ptx_of_a_fatbin_is_loaded_in_both_forms(void **state)
{
    (void)state;
    in_both_forms(load_ptx_of_fatbins);
}

/* The service goes on; the driver's word for it stands in the message. */
static void check_refused(strata_service *service, const void *bytes, size_t count, const char *words)
{
    strata_future *future;
    strata_answer answer;
    check_ok(strata_service_load(service, bytes, count, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, words);
    check_ok(strata_future_take(future, &answer));
    assert_int_equal(answer.failure, STRATA_FAILURE_REQUEST);
    strata_future_release(future);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
}

static void load_for_others(strata_service *service)
{
    strata_service_stats stats;
    char device[128];
    Elf64_Ehdr cubin = cubin_for(35, 7);
    check_ok(strata_service_get_stats(service, &stats));
    snprintf(device, sizeof device, "for sm_35, on a device of sm_%u%u%s: cuModuleLoadData returned CUDA_ERROR",
             stats.compute_major, stats.compute_minor,
             test_on_simulated_driver() ? ", which is simulated and takes PTX alone, uncompressed" : "");
    check_refused(service, &cubin, sizeof cubin, "a cubin for sm_35");
    check_refused(service, &cubin, sizeof cubin, device);
    cubin = cubin_for(250, 8);
    check_refused(service, &cubin, sizeof cubin, "a cubin for sm_250, on");
    cubin.e_machine = EM_X86_64;
    check_refused(service, &cubin, sizeof cubin, "an ELF file that is no cubin (machine 62), on");
    cubin = cubin_for(35, 7);
    begin_fatbin(&image);
    add_entry(&image, KIND_CUBIN, 35, 0, &cubin, sizeof cubin);
    add_ptx(&image, 250, "of a device to come");
    check_refused(service, image.bytes, image.count, "a fatbin for sm_35, compute_250 (PTX), on");
    begin_fatbin(&image);
    for (unsigned i = 0; i < 30; i++)
        add_entry(&image, KIND_CUBIN, 30 + i, 0, &cubin, sizeof cubin);
    check_refused(service, image.bytes, image.count, "a fatbin for sm_30, sm_31, sm_32");
    check_last_error(STRATA_ERROR_DRIVER, " ..., on a device of");
    begin_fatbin(&image);
    check_refused(service, image.bytes, image.count, "a fatbin, on");
    check_refused(service, "no PTX", 0, "of 6 bytes, PTX, on");
}

static void an_image_for_another_architecture_is_refused_by_its_name(void **state)
{
    (void)state;
    in_both_forms(load_for_others);
}

static void load_compressed(strata_service *service)
{
    begin_fatbin(&image);
    add_entry(&image, KIND_PTX, 52, ZSTD, "bytes", 6);
    check_refused(service, image.bytes, image.count, "a fatbin for compute_52 (PTX), on");
}

static void the_simulated_driver_reads_no_compressed_ptx(void **state)
{
    (void)state;
    if (!test_on_simulated_driver())
        skip();
    in_both_forms(load_compressed);
}

/* ---- images that are not whole ---- */

static void check_torn(strata_service *service, const void *bytes, size_t count)
{
    strata_future *future = NULL;
    check_status(strata_service_load(service, bytes, count, NULL, &future), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "is not whole");
    assert_null(future);
}

/* Every shorter one; the allocation ends with it, so that a sanitizer sees a read behind it. */
static void check_all_torn(strata_service *service, const unsigned char *bytes, size_t count, size_t step)
{
    for (size_t shorter = 4; shorter < count; shorter += step) {
        unsigned char *torn = malloc(shorter);
        assert_non_null(torn);
        memcpy(torn, bytes, shorter);
        check_torn(service, torn, shorter);
        free(torn);
    }
}

typedef struct cubin_with_sections {
    Elf64_Ehdr head;
    Elf64_Shdr sections[2];
    char names[16];
} cubin_with_sections;

/* The head has no room for such lengths: the first section has them. */
static void load_torn_with_extended_numbering(strata_service *service, cubin_with_sections cubin)
{
    static const uint64_t too_many[] = {0, 3, 1ull << 58, UINT64_MAX};
    cubin.head.e_shnum = 0;
    for (size_t i = 0; i < sizeof too_many / sizeof too_many[0]; i++) {
        cubin.sections[0].sh_size = too_many[i];
        check_torn(service, &cubin, sizeof cubin);
    }
    cubin.sections[0].sh_size = 2;
    check_all_torn(service, (const unsigned char *)&cubin, sizeof cubin, 1);
    cubin.sections[0].sh_link = 2;
    cubin.head.e_shstrndx = SHN_XINDEX;
    check_torn(service, &cubin, sizeof cubin);
    cubin.sections[0].sh_link = 1;
    cubin.sections[1].sh_size++;
    check_torn(service, &cubin, sizeof cubin);
    cubin.sections[1].sh_size--;
    cubin.head.e_flags = cubin_for(35, 8).e_flags;
    check_refused(service, &cubin, sizeof cubin, "a cubin for sm_35"); /* whole */
}

static void load_torn_with_many_segments(strata_service *service, const cubin_with_sections *cubin)
{
    const size_t bytes = sizeof *cubin + (size_t)PN_XNUM * sizeof(Elf64_Phdr);
    cubin_with_sections *many = calloc(1, bytes);
    assert_non_null(many);
    *many = *cubin;
    many->head.e_phoff = sizeof *cubin;
    many->head.e_phentsize = sizeof(Elf64_Phdr);
    many->head.e_phnum = PN_XNUM;
    many->sections[0].sh_info = PN_XNUM + 1;
    check_torn(service, many, bytes);
    many->sections[0].sh_info = 1;
    check_torn(service, many, bytes);
    many->sections[0].sh_info = PN_XNUM;
    many->head.e_flags = cubin_for(35, 8).e_flags;
    check_refused(service, many, bytes, "a cubin for sm_35"); /* whole */
    many->head.e_shoff = many->head.e_shnum = 0;
    check_torn(service, many, bytes);
    free(many);
}

static void load_torn(strata_service *service)
{
    static const unsigned char wrapper[24] = {0xb1, 0x43, 0x62, 0x46, 1};
    cubin_with_sections cubin = {.head = cubin_for(90, 8)};
    cubin.sections[1] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(cubin_with_sections, names), .sh_size = sizeof cubin.names};
    cubin.head.e_shoff = offsetof(cubin_with_sections, sections);
    cubin.head.e_shnum = 2;
    cubin.head.e_shentsize = sizeof(Elf64_Shdr);
    check_all_torn(service, (const unsigned char *)&cubin, sizeof cubin, 1);
    load_torn_with_extended_numbering(service, cubin);
    load_torn_with_many_segments(service, &cubin);
    begin_fatbin(&image);
    add_ptx(&image, 52, test_fill_ptx);
    check_all_torn(service, image.bytes, image.count, 7);
    check_torn(service, wrapper, sizeof wrapper);
    const size_t whole = image.count;
    put(&image, HEAD_BYTES + 8, whole, 8); /* an image that is longer than its fatbin */
    check_torn(service, image.bytes, whole);
    put(&image, HEAD_BYTES + 8, UINT64_MAX - 70, 8);
    check_torn(service, image.bytes, whole);
    put(&image, HEAD_BYTES + 4, 8, 4); /* an entry that is shorter than its head */
    check_torn(service, image.bytes, whole);
    put(&image, HEAD_BYTES + 4, UINT32_MAX, 4);
    check_torn(service, image.bytes, whole);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
}

static void torn_images_are_refused_by_both_forms(void **state)
{
    (void)state;
    in_both_forms(load_torn);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cubins_and_fatbins_are_loaded_as_ptx_is),
        cmocka_unit_test(cubins_and_fatbins_are_loaded_by_a_worker),
        cmocka_unit_test(the_ptx_of_a_fatbin_is_loaded_in_both_forms),
        cmocka_unit_test(an_image_for_another_architecture_is_refused_by_its_name),
        cmocka_unit_test(the_simulated_driver_reads_no_compressed_ptx),
        cmocka_unit_test(torn_images_are_refused_by_both_forms),
    };
    return cmocka_run_group_tests(tests, write_ptx, remove_files);
}
