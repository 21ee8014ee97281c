// Stores that bypass the caches.
#pragma once

namespace switchml::kernels {

// Other threads see such stores after a release store only if this function was called before it.
void fence_streaming_stores();

}  // namespace switchml::kernels
