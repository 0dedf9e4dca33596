/* Narrow floating-point types, read and written as f32. Formats: IEEE 754 binary16; bfloat16, the upper half of
 * binary32; E4M3 and E5M2 of the OCP 8-bit Floating Point Specification 1.0. */
#include "blas.h"

#include <math.h>
#include <string.h>

size_t sim_blas_type_bytes(int type)
{
    switch (type) {
    case TYPE_32F:
        return 4;
    case TYPE_64F:
        return 8;
    case TYPE_16F:
    case TYPE_16BF:
        return 2;
    case TYPE_8F_E4M3:
    case TYPE_8F_E5M2:
        return 1;
    default:
        return 0;
    }
}

static float single_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* `exponents` and `fractions` are bits of these parts; the largest exponent means infinity and NaN. */
static float decode(uint32_t bits, int exponents, int fractions)
{
    const uint32_t exponent = bits >> fractions & ((1u << exponents) - 1), fraction = bits & ((1u << fractions) - 1);
    const float sign = bits >> (exponents + fractions) & 1 ? -1.0f : 1.0f;
    const int bias = (1 << (exponents - 1)) - 1;
    if (exponent == (1u << exponents) - 1)
        return fraction ? NAN : sign * INFINITY;
    if (!exponent)
        return sign * ldexpf((float)fraction, 1 - bias - fractions);
    return sign * ldexpf((float)(fraction | 1u << fractions), (int)exponent - bias - fractions);
}

/* E4M3 has no infinity: its largest exponent is a number, except for the largest fraction. */
static float decode_e4m3(uint32_t bits)
{
    if ((bits & 0x78) != 0x78)
        return decode(bits, 4, 3);
    if ((bits & 0x7f) == 0x7f)
        return NAN;
    return (bits & 0x80 ? -1.0f : 1.0f) * ldexpf((float)(8 | (bits & 7)), 8 - 3);
}

float sim_blas_to_single(int type, const void *element)
{
    uint32_t bits;
    uint16_t half = 0;
    memcpy(&half, element, type == TYPE_16F || type == TYPE_16BF ? sizeof half : 1);
    switch (type) {
    case TYPE_16F:
        return decode(half, 5, 10);
    case TYPE_16BF:
        return single_of((uint32_t)half << 16);
    case TYPE_8F_E4M3:
        return decode_e4m3(half & 0xff);
    case TYPE_8F_E5M2:
        return decode(half & 0xff, 5, 2);
    default:
        memcpy(&bits, element, sizeof bits);
        return single_of(bits);
    }
}

/* To the nearest, of two to the even one. */
static uint32_t shift_rounding(uint32_t value, int by)
{
    const uint32_t half = 1u << (by - 1), rest = value & ((half << 1) - 1);
    value >>= by;
    return value + (rest > half || (rest == half && value & 1));
}

static uint16_t to_half(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x47800000) /* 65536 and above; what rounds up to it becomes infinite below */
        return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000) /* 2^-14: normal */
        return (uint16_t)(sign | shift_rounding(size - 0x38000000, 13));
    const int exponent = (int)(size >> 23);
    if (exponent < 102) /* below half of the smallest */
        return (uint16_t)sign;
    return (uint16_t)(sign | shift_rounding((size & 0x7fffff) | 0x800000, 126 - exponent));
}

static uint16_t to_brain(float value)
{
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_rounding(bits, 16);
}

void sim_blas_from_single(int type, float value, void *element)
{
    const uint16_t half = type == TYPE_16F ? to_half(value) : to_brain(value);
    if (type == TYPE_32F)
        memcpy(element, &value, sizeof value);
    else
        memcpy(element, &half, sizeof half);
}
