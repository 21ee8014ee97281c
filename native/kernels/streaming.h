// Stores that bypass the caches.
#pragma once

namespace switchml::kernels {

// Such stores are seen by others after a release store only if this comes before it.
void fence_streaming_stores();

}  // namespace switchml::kernels
