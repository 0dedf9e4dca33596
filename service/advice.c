/* What a message says to do about an error of the system. */
#include "service/service.h"

#include <errno.h>

const char *service_descriptor_advice(int error)
{
    if (error == EMFILE)
        return "; close some, or raise the limit (ulimit -n)";
    return error == ENFILE ? "; close some, or raise the limit of the system (fs.file-max)" : "";
}
