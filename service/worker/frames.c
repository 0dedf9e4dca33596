/* Which frame is taken where. */
#include "service/worker/worker.h"

bool worker_take_frame(worker *self, const worker_frame *frame)
{
    switch (frame->head.kind) {
    case WIRE_ALLOCATE:
        return worker_take_allocate(self, frame);
    case WIRE_COPY_TO_HOST:
    case WIRE_COPY_FROM_HOST:
        return worker_take_copy(self, frame);
    case WIRE_LOAD:
        return worker_take_load(self, frame);
    case WIRE_LAUNCH:
        return worker_take_launch(self, frame);
    case WIRE_BLAS:
        return worker_take_blas(self, frame);
    case WIRE_NOTHING:
        return worker_take_nothing(self, frame);
    case WIRE_BUFFER:
        return worker_take_buffer(self, frame);
    case WIRE_BUFFER_END:
        return worker_drop_buffer(self, frame);
    case WIRE_RELEASE:
        return worker_take_release(self, frame);
    case WIRE_QUESTION:
        return worker_take_question(self, frame);
    default:
        return false;
    }
}
