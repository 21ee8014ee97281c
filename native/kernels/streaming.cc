#include "native/kernels/streaming.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml::kernels {

void fence_streaming_stores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace switchml::kernels
