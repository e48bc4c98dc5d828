"""Steps as one call of the C++ library, over weights packed for it; without torch, whose import takes seconds."""
