// The properties of a communicator on which the contributions of its calls depend.
#pragma once

#include "native/channel/channel.h"
#include "native/kernels/weights.h"

namespace switchml::client {

struct Geometry : channel::Geometry {
  const kernels::Weights* weights = &kernels::kNoWeights;  // of the check of every packet; they outlive all codecs
};

}  // namespace switchml::client
