// Paged attention over a ragged batch: how the work is cut and who does it. Parameters have been checked.
#pragma once

#include "octavo.h"

namespace octavo {

void paged_attention(const octavo_paged_attention_params &params);

} // namespace octavo
