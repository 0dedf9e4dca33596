/* Copies of rows: cuMemcpy2D, cuMemcpy3D and their variants. A copy of rows is a copy of planes with one plane. A pitch
 * of zero means rows without gaps. Padding is not copied; behind the last row it need not be memory. */
#include "memory/memory.h"
#include <stdlib.h>
#include <string.h>

/* Adds a * b; false if the sum is more than any memory has. */
static bool add_product(uint64_t *sum, uint64_t a, uint64_t b)
{
    if (a != 0 && b > (SIM_MOST_MEMORY - *sum) / a)
        return false;
    *sum += a * b;
    return *sum <= SIM_MOST_MEMORY;
}

/* Distances of rows and planes. False: too large, or they would overlap. */
static bool measure(const sim_rows_end *end, const sim_rows_request *copy, sim_rows *rows)
{
    uint64_t width = 0;
    uint64_t height = 0;
    bool possible = add_product(&width, 1, end->x) && add_product(&width, 1, copy->width) &&
                    add_product(&height, 1, end->y) && add_product(&height, 1, copy->rows);
    if (!possible)
        return false;
    rows->pitch = end->pitch ? end->pitch : width;
    height = end->height ? end->height : height;
    rows->plane = 0;
    if (rows->pitch < width || height < copy->rows)
        return false;
    bool flat = copy->planes == 1 && end->z == 0;
    return flat || add_product(&rows->plane, rows->pitch, height);
}

static bool span_of(const sim_rows_request *copy, const sim_rows *rows, uint64_t *bytes)
{
    *bytes = 0;
    return add_product(bytes, copy->planes - 1, rows->plane) && add_product(bytes, copy->rows - 1, rows->pitch) &&
           add_product(bytes, 1, copy->width);
}

static bool side_of(const sim_rows_end *end, sim_side *side, uint64_t *base)
{
    *base = end->type == CU_MEMORYTYPE_HOST ? end->host : end->device;
    *side = end->type == CU_MEMORYTYPE_HOST     ? SIM_HOST_SIDE
            : end->type == CU_MEMORYTYPE_DEVICE ? SIM_DEVICE_SIDE
                                                : SIM_ANY_SIDE;
    bool known =
        end->type == CU_MEMORYTYPE_HOST || end->type == CU_MEMORYTYPE_DEVICE || end->type == CU_MEMORYTYPE_UNIFIED;
    return known && *base != 0;
}

static bool locate(const sim_context *context, const sim_rows_end *end, const sim_rows_request *copy, bool write,
                   bool graphs, sim_rows *rows)
{
    sim_side side;
    uint64_t base;
    uint64_t bytes;
    uint64_t offset = 0;
    if (!side_of(end, &side, &base) || !measure(end, copy, rows) || !span_of(copy, rows, &bytes))
        return false;
    bool there = add_product(&offset, end->z, rows->plane) && add_product(&offset, end->y, rows->pitch) &&
                 add_product(&offset, 1, end->x);
    return there && sim_locate(context, base + offset, bytes, side, write, graphs, &rows->place);
}

static void move_rows(const sim_op *op, char *to, uint64_t to_pitch, uint64_t to_plane, const char *from,
                      uint64_t from_pitch, uint64_t from_plane)
{
    for (size_t plane = 0; plane < op->work.rows.planes; plane++) {
        for (size_t row = 0; row < op->work.rows.rows; row++) {
            memmove(to + plane * to_plane + row * to_pitch, from + plane * from_plane + row * from_pitch,
                    op->work.rows.width);
        }
    }
}

static uint64_t span_of_op(const sim_op *op, const sim_rows *rows)
{
    return (op->work.rows.planes - 1) * rows->plane + (op->work.rows.rows - 1) * rows->pitch + op->work.rows.width;
}

static char *reach(const sim_op *op, const sim_rows *rows, bool write)
{
    const sim_place *place = &rows->place;
    return place->pageable ? (char *)(uintptr_t)place->address
                           : sim_touch(op->context, place->address, span_of_op(op, rows), SIM_BY_COPY, write);
}

uint64_t sim_rows_bytes(const sim_op *op)
{
    return (uint64_t)op->work.rows.width * op->work.rows.rows * op->work.rows.planes;
}

bool sim_rows_run(sim_op *op)
{
    const sim_rows *from_rows = &op->work.rows.from;
    const sim_rows *to_rows = &op->work.rows.to;
    char *to = reach(op, to_rows, true);
    const char *staged = op->work.rows.staged;
    if (to && staged) {
        uint64_t width = op->work.rows.width;
        move_rows(op, to, to_rows->pitch, to_rows->plane, staged, width, width * op->work.rows.rows);
        return true;
    }
    const char *from = reach(op, from_rows, false);
    if (!to || !from)
        return false;
    move_rows(op, to, to_rows->pitch, to_rows->plane, from, from_rows->pitch, from_rows->plane);
    return true;
}

static bool stage(sim_op *op)
{
    const sim_rows *from = &op->work.rows.from;
    if (!from->place.pageable)
        return true;
    char *staged = malloc(sim_rows_bytes(op));
    if (!staged)
        return false;
    uint64_t width = op->work.rows.width;
    move_rows(op, staged, width, width * op->work.rows.rows, (const char *)(uintptr_t)from->place.address, from->pitch,
              from->plane);
    op->work.rows.staged = staged;
    return true;
}

static sim_op shape_of(const sim_rows_request *copy, const sim_rows *to, const sim_rows *from)
{
    sim_op shape = {.kind = SIM_OP_COPY_ROWS};
    shape.work.rows.to = *to;
    shape.work.rows.from = *from;
    shape.work.rows.width = copy->width;
    shape.work.rows.rows = copy->rows;
    shape.work.rows.planes = copy->planes;
    return shape;
}

static CUresult submit(sim_queue *queue, const sim_rows_request *copy, const sim_rows *to, const sim_rows *from,
                       sim_op **op)
{
    sim_op shape = shape_of(copy, to, from);
    if (!queue->capture && !stage(&shape))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_op *made = sim_op_create(queue->context, queue, SIM_OP_COPY_ROWS, 0);
    if (!made) {
        free(shape.work.rows.staged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->work = shape.work;
    *op = sim_op_hold(made);
    sim_op_submit(made);
    return CUDA_SUCCESS;
}

CUresult sim_rows_submit(const sim_rows_request *copy, CUstream stream, bool synchronous)
{
    sim_queue *queue;
    sim_rows to;
    sim_rows from;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result == CUDA_SUCCESS && synchronous)
        result = sim_capture_guard_queue(queue);
    if (result != CUDA_SUCCESS || copy->width == 0 || copy->rows == 0 || copy->planes == 0)
        return result;
    sim_context *context = queue->context;
    bool captured = queue->capture != NULL;
    if (!locate(context, &copy->to, copy, true, captured, &to) ||
        !locate(context, &copy->from, copy, false, captured, &from))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_copy_prepare(queue, &from.place, synchronous);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op *op;
    result = submit(queue, copy, &to, &from, &op);
    return result == CUDA_SUCCESS ? sim_copy_finish(context, op, &to.place, &from.place, synchronous) : result;
}

sim_rows_request sim_rows_of_3d(const CUDA_MEMCPY3D *asked)
{
    return (sim_rows_request){
        .to = {.type = asked->dstMemoryType,
               .host = (uint64_t)(uintptr_t)asked->dstHost,
               .device = asked->dstDevice,
               .x = asked->dstXInBytes,
               .y = asked->dstY,
               .z = asked->dstZ,
               .pitch = asked->dstPitch,
               .height = asked->dstHeight},
        .from = {.type = asked->srcMemoryType,
                 .host = (uint64_t)(uintptr_t)asked->srcHost,
                 .device = asked->srcDevice,
                 .x = asked->srcXInBytes,
                 .y = asked->srcY,
                 .z = asked->srcZ,
                 .pitch = asked->srcPitch,
                 .height = asked->srcHeight},
        .width = asked->WidthInBytes,
        .rows = asked->Height,
        .planes = asked->Depth,
    };
}

/* For a graph's node, where an empty copy is an error. */
CUresult sim_rows_describe(sim_context *context, const CUDA_MEMCPY3D *asked, sim_op *what)
{
    sim_rows_request copy = sim_rows_of_3d(asked);
    sim_rows to;
    sim_rows from;
    if (copy.width == 0 || copy.rows == 0 || copy.planes == 0 || !locate(context, &copy.to, &copy, true, true, &to) ||
        !locate(context, &copy.from, &copy, false, true, &from))
        return CUDA_ERROR_INVALID_VALUE;
    *what = shape_of(&copy, &to, &from);
    what->context = context;
    return CUDA_SUCCESS;
}
