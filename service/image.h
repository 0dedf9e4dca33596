/* Images of modules: PTX, cubins and fatbins, as far as they can be told apart and compared with their length. */
#ifndef STRATA_SERVICE_IMAGE_H
#define STRATA_SERVICE_IMAGE_H

#include <strata/status.h>

#include <stddef.h>

/* Whether the driver can read a module from these bytes without reading beyond them. Error: INVALID_VALUE. */
strata_status service_image_check(const void *image, size_t bytes);

enum { SERVICE_IMAGE_TEXT = 128 };

/* What a whole image is and which architectures it has code for: "a cubin for sm_90". What does not fit is left out,
 * with "..." in its place. */
void service_image_describe(const void *image, size_t bytes, char text[SERVICE_IMAGE_TEXT]);

#endif
