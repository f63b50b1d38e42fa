// SPDX-License-Identifier: Apache-2.0
//
// Which instruction set the row kernels use: the machine's best, or one that was asked for.
#pragma once

#include <cstdint>
#include <string>

#include "rows.hpp"

namespace u4moe {

// The kernels in use, or the portable ones where those do not take groups of this size.
const RowKernels& kernels_for(std::int64_t group);

// Takes the named set ("auto" for the best, "" for no change) and returns the name of the one in
// use. Throws where the processor or the build has no such set.
std::string isa(const std::string& name);

}  // namespace u4moe
