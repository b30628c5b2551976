//! One file per family of architectures.

pub(crate) mod bert;
pub(crate) mod clip;
pub(crate) mod conformer;
pub(crate) mod deep_voice;
pub(crate) mod deeplob;
pub(crate) mod efficientnet;
pub(crate) mod fastspeech2;
pub(crate) mod gpt2;
pub(crate) mod graphs;
pub(crate) mod mcmc;
pub(crate) mod recurrent;
pub(crate) mod resnet;
pub(crate) mod schnet;
pub(crate) mod sparse;
pub(crate) mod swin;
pub(crate) mod tgn;
pub(crate) mod unet;
pub(crate) mod vit;
