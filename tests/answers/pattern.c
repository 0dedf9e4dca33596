/* The kernel of the questions. A GPU compiles this text; the simulated driver runs its own function of this name. Byte
 * i of the pattern is byte i % 8, lowest first, of mix(seed + i / 8). */
#include "ask.h"

const char pattern_module[] = ".version 6.4\n"
                              ".target sm_52\n"
                              ".address_size 64\n"
                              ".visible .entry strata_pattern_fill(\n"
                              "    .param .u64 address, .param .u64 bytes, .param .u64 seed)\n"
                              "{\n"
                              "    .reg .pred %done;\n"
                              "    .reg .b32 %threads, %block, %thread, %blocks, %shift;\n"
                              "    .reg .b64 %address, %bytes, %seed, %i, %step, %x, %y, %at;\n"
                              "    ld.param.u64 %address, [address];\n"
                              "    ld.param.u64 %bytes, [bytes];\n"
                              "    ld.param.u64 %seed, [seed];\n"
                              "    cvta.to.global.u64 %address, %address;\n"
                              "    mov.u32 %threads, %ntid.x;\n"
                              "    mov.u32 %block, %ctaid.x;\n"
                              "    mov.u32 %thread, %tid.x;\n"
                              "    mov.u32 %blocks, %nctaid.x;\n"
                              "    mul.wide.u32 %i, %block, %threads;\n"
                              "    cvt.u64.u32 %x, %thread;\n"
                              "    add.u64 %i, %i, %x;\n"
                              "    mul.wide.u32 %step, %blocks, %threads;\n"
                              "next:\n"
                              "    setp.ge.u64 %done, %i, %bytes;\n"
                              "    @%done bra end;\n"
                              "    shr.u64 %x, %i, 3;\n"
                              "    add.u64 %x, %x, %seed;\n"
                              "    shr.u64 %y, %x, 30;\n"
                              "    xor.b64 %x, %x, %y;\n"
                              "    mul.lo.u64 %x, %x, 0xbf58476d1ce4e5b9;\n"
                              "    shr.u64 %y, %x, 27;\n"
                              "    xor.b64 %x, %x, %y;\n"
                              "    mul.lo.u64 %x, %x, 0x94d049bb133111eb;\n"
                              "    shr.u64 %y, %x, 31;\n"
                              "    xor.b64 %x, %x, %y;\n"
                              "    cvt.u32.u64 %shift, %i;\n"
                              "    and.b32 %shift, %shift, 7;\n"
                              "    shl.b32 %shift, %shift, 3;\n"
                              "    shr.u64 %x, %x, %shift;\n"
                              "    add.u64 %at, %address, %i;\n"
                              "    st.global.u8 [%at], %x;\n"
                              "    add.u64 %i, %i, %step;\n"
                              "    bra next;\n"
                              "end:\n"
                              "    ret;\n"
                              "}\n";

unsigned char pattern_byte(unsigned long long seed, size_t offset)
{
    unsigned long long x = seed + offset / 8;
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    x ^= x >> 31;
    return (unsigned char)(x >> (offset % 8 * 8));
}

CUfunction pattern_fill_function(void)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    cu.ModuleLoadData(&module, pattern_module);
    cu.ModuleGetFunction(&function, module, "strata_pattern_fill");
    return function;
}

CUresult pattern_fill(CUfunction function, CUdeviceptr address, size_t bytes, unsigned long long seed, CUstream stream)
{
    void *parameters[] = {&address, &bytes, &seed};
    return cu.LaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
}
